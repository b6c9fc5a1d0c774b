"""The bus: topics and subscriptions over the store, behind the seam other transports share."""
