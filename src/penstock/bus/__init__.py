"""The bus: topics and subscriptions over the store, behind the interface other transports share."""
