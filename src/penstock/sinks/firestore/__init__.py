"""Firestore sink: users' documents, with marks, counters and audit records."""
