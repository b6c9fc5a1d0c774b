"""`penstock verify`: proof from the journal that nothing was lost, repeated or changed."""
