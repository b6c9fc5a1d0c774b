"""The JSON corpus through the whole kit: same outcome on both engines, values unchanged."""

from typing import Any

from penstock.consumer import Consumer, ConsumerOptions, Message, Upsert
from penstock.sinks.protocol import Sink

BAD = {
    "NaN": b'{"v": NaN}', "infinity": b'{"v": Infinity}', "overflow": b'{"v": 1e999}',
    "5000 digits": b'{"v": ' + b"9" * 5_000 + b"}", "65 bits": b'{"v": 18446744073709551616}',
    "NUL": b'{"v": "\\u0000"}', "NUL in a name": b'{"v\\u0000": 1}',
    "lone surrogate": b'{"v": "\\ud800"}', "half a pair": b'{"v": "\\udc00\\ud800"}',
    "deep": b"[" * 100_000, "deep objects": b'{"v":' * 100_000,
    "million names": b"{" + b",".join(b'"%d":0' % n for n in range(1_000_000)) + b"}",
    "names equal after NFC": '{"é": 1, "e\u0301": 2}'.encode(), "names twice": b'{"v": 1, "v": 2}',
    "bom": b'\xef\xbb\xbf{"v": 1}', "utf-16": '{"v": 1}'.encode("utf-16"), "empty": b"",
    "trailing": b'{"v": 1} x', "two": b'{"v": 1}{"v": 2}', "not utf-8": b'{"v": "\xff"}',
}  # fmt: skip
GOOD: dict[bytes, Any] = {
    b'{"v": -0}': 0, b'{"v": -0.0}': -0.0, b'{"v": 9007199254740993}': 2**53 + 1,
    b'{"v": -9223372036854775808}': -(2**63), b'{"v": 1e308}': 1e308, b'{"v": 5e-324}': 5e-324,
    b'{"v": "\\ud83d\\ude00"}': "\U0001f600", '{"v": "\u202e\u200b"}'.encode(): "\u202e\u200b",
    b'{"v": "\';DROP TABLE x--%s%(a)s:name"}': "';DROP TABLE x--%s%(a)s:name",
    b'{"v": {"__proto__": [null, true, "<script>", "{{7*7}}"]}}': {
        "__proto__": [None, True, "<script>", "{{7*7}}"]
    },
}  # fmt: skip


def test_json(sink: Sink) -> None:
    """Invalid JSON is poison, counted and audited; unusual valid JSON is stored unchanged."""
    app = Consumer("corpus", sink=sink, options=ConsumerOptions(log=lambda _: None))

    @app.on()
    def keep(message: Message) -> Upsert:
        return Upsert(path=f"values/{message.id}", fields={"v": message.json["v"]})

    def handle(name: str, data: bytes) -> str:
        return app.handle(Message(id=name, data=data, subscription="corpus")).outcome.value

    for name, data in BAD.items():
        assert handle(name, data) == "poison", name
    kept = {record.message_id: record.data_size for record in sink.audits("corpus")}
    assert kept == {name: len(data) for name, data in BAD.items()}
    for number, (data, value) in enumerate(GOOD.items()):
        assert handle(str(number), data) == "applied", data
        stored = sink.document(f"values/{number}")
        assert stored is not None
        assert repr(stored.fields["v"]) == repr(value)
    assert app.counters() == {"poison": len(BAD), "applied": len(GOOD)}
    app.close()
