"""Limits: declare a capacity, hold a slot, see who holds it."""

from datetime import timedelta

from penstock import connect, limits

if __name__ == "__main__":
    with connect("sqlite:limits.db") as client:
        client.limits.declare("crm", capacity=2, lease=timedelta(minutes=5))
        with limits.slot("crm", client=client) as slot:
            detail = client.limits.get("crm")
            print(detail.limit.held, "of", detail.limit.capacity)
            print(detail.holders[0].fencing_token == slot.token)
        print(client.limits.get("crm").limit.held)
