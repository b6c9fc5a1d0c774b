"""Journal, outbox and alerts as stored."""
