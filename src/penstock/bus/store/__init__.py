"""Topics, messages, deliveries and bindings as stored."""
