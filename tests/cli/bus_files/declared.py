"""Topics and subscriptions that are declared and do not exist yet."""

from penstock.bus import SubscriptionSpec, TopicSpec

topics = [TopicSpec(name="declared"), TopicSpec(name="audit.dlq")]
audit = SubscriptionSpec(name="audit", topic="declared", dead_letter_topic="audit.dlq")
