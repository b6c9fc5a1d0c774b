"""Firestore sink: documents as users read them, marks, counters and audit records beside them."""
