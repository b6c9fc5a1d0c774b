"""Push subscriptions: requests to endpoints, their signatures and concurrency."""
