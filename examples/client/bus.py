"""Bus: a topic, a subscription, a message with an ordering key, ack."""

from datetime import timedelta

from penstock import connect
from penstock.bus import NewMessage, Subscription, Topic

if __name__ == "__main__":
    with connect("sqlite:bus.db") as client:
        client.topics.create(Topic(name="rosters", retention=timedelta(days=3)))
        client.subscriptions.declare(
            Subscription(name="to-table", topic="rosters", is_ordered=True)
        )
        published = client.topics.publish(
            "rosters", [NewMessage(data=b'{"team": "ATL"}', ordering_key="ATL")]
        )
        (got,) = client.subscriptions.pull("to-table")
        print(
            got.message.data,
            got.message.message_id == published.message_ids[0],
            got.deadline > got.message.publish_time,
        )
        print(client.subscriptions.ack("to-table", [got.ack_id]))
        print(client.subscriptions.get("to-table").totals.acked)
