"""Push configurations as the store holds them."""

import json
from typing import Any

from penstock.bus.push.push_config import PushConfig
from penstock.core.redact import REFERENCE


def push_to_json(spec: PushConfig) -> dict[str, Any]:
    """Return the JSON form of a push configuration; secrets are references, never values."""
    shown: dict[str, Any] = {"push_endpoint": spec.endpoint}
    if spec.oidc is not None:
        shown["oidc_token"] = {"service_account_email": spec.oidc.email}
        if spec.oidc.audience is not None:
            shown["oidc_token"]["audience"] = spec.oidc.audience
    if spec.signing_secrets:
        shown["signing_secrets"] = [{REFERENCE: name} for name in spec.signing_secrets]
    if not spec.is_wrapped:
        shown["no_wrapper"] = {"write_metadata": spec.writes_metadata}
    return shown


def serialize_push(spec: PushConfig) -> str:
    """Return the JSON under which a push configuration is stored."""
    return json.dumps(push_to_json(spec), sort_keys=True, separators=(",", ":"))
