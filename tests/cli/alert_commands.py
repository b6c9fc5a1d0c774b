"""Commands about alerts that both backends run alike."""

ALERT_READS = [
    "alerts list --severity HIGH --rule config_disabled --pipeline broken --since 2h",
    "alerts silences",
    "alerts silences --all --customer acme",
    "alerts rules",
    "alerts channels",
    "alerts notices --state sent",
]
ALERT_REFUSED = [
    ("alerts show alert_00000000", 3),
    ("alerts ack alert_00000000", 3),
    ("alerts ack", 2),
    ("alerts resolve alert_00000000", 3),
    ("alerts silence --reason x --for 1h", 2),
    ("alerts silence --rule x --reason x", 2),
    ("alerts silence alert_00000000 --reason x --for 1h", 3),
    ("alerts unsilence sil_00000000", 3),
    ("alerts test unknown", 3),
    ("alerts resend unknown", 3),
]
ALERT_WRITES = [
    "alerts silence --rule config_disabled --for 1h --reason rest --dry-run",
    "alerts silence --severity INFO --for 90m --reason rest",
    "alerts ack --rule config_failing --note mine --yes --dry-run",
    "alerts resolve --pipeline none --yes",
]
