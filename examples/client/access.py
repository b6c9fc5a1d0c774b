"""Keys: create one for a customer, rotate it, revoke it."""

from datetime import timedelta

from penstock import Role, connect

if __name__ == "__main__":
    with connect("sqlite:access.db") as client:
        made = client.keys.create("dashboard", Role.VIEWER, expires=timedelta(days=90))
        key_id = made.info.key_id
        print(made.key is not None, made.info.role, made.info.expires_at is not None)
        client.keys.rotate(key_id, overlap="1h")
        client.keys.revoke(key_id, reason="it was in a log")
        print([key.name for key in client.keys.list().items])
