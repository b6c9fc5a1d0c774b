"""The pipelines of a small SaaS platform: billing, audits and reports, declared as users do.

The settings are those of the examples in the original design. `penstock demo saas` runs the
pipelines in simulated time; `penstock up --pipelines penstock.demo.saas` runs them in real time.
`examples/saas` exports them.
"""

from __future__ import annotations

from typing import Any

from penstock import Pipeline, Result, RunContext
from penstock.demo.saas.cloud import CLOUD

cost_billing = Pipeline(
    "cost_billing",
    parameters={
        "type": "object",
        "properties": {
            "billing_account_id": {"type": "string", "minLength": 1},
            "project_ids": {"type": "array", "items": {"type": "string"}, "default": []},
            "include_labels": {"type": "boolean", "default": True},
            "include_credits": {"type": "boolean", "default": True},
            "date_range": {
                "type": "string",
                "enum": ["previous_day", "month_to_date"],
                "default": "previous_day",
            },
        },
        "required": ["billing_account_id"],
        "additionalProperties": False,
    },
    rate_second=0.000_02,
)
"""Pipeline that exports the costs of a billing account."""

security_audit = Pipeline(
    "security_audit",
    parameters={
        "type": "object",
        "properties": {
            "aws_account_id": {"type": "string", "minLength": 12, "maxLength": 12},
            "regions": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "audit_services": {"type": "array", "items": {"type": "string"}},
            "compliance_framework": {"type": "string", "default": "CIS_AWS_FOUNDATIONS"},
        },
        "required": ["aws_account_id", "regions"],
        "additionalProperties": False,
    },
)
"""Pipeline that audits the regions of a cloud account."""

compliance_report = Pipeline(
    "compliance_report",
    parameters={
        "type": "object",
        "properties": {
            "framework": {"type": "string", "enum": ["SOC2", "ISO27001", "HIPAA"]},
            "sections": {"type": "integer", "minimum": 1, "maximum": 50, "default": 5},
        },
        "required": ["framework"],
        "additionalProperties": False,
    },
)
"""Pipeline that builds a compliance report from its sections."""


@cost_billing.processor(timeout="60m")
def export_costs(run: RunContext) -> Result:
    """Fetch the billing rows of every project and sum their cost."""
    wanted: Any = run.parameters
    total = rows = 0
    for number, project in enumerate(wanted["project_ids"], 1):
        answer = CLOUD.call(run, "GCP", f"billing/{project}")
        rows += answer.rows
        total += answer.cents
        run.progress(100 * number / len(wanted["project_ids"]), "extract", extracted=rows)
    return Result(summary={"rows": rows, "cost": f"{total / 100:.2f}"}, records=rows)


@security_audit.processor(timeout="180m")
def audit_account(run: RunContext) -> Result:
    """Audit every service in every region and count violations of the framework."""
    wanted: Any = run.parameters
    audited = found = 0
    for region in wanted["regions"]:
        for service in wanted.get("audit_services", ["iam"]):
            answer = CLOUD.call(run, "AWS", f"{service}/{region}")
            audited += answer.rows
            found += answer.cents % 3 == 0
        run.progress(stage=region, extracted=audited)
    status = "PARTIAL_SUCCESS" if found > audited else "SUCCESS"
    return Result(status=status, summary={"resources": audited, "findings": found}, records=audited)


@compliance_report.processor(timeout="30m")
def build_report(run: RunContext) -> Result:
    """Collect the evidence for each section of the report."""
    wanted: Any = run.parameters
    pieces = sum(
        CLOUD.call(run, "AZURE", f"{wanted['framework']}/{section}").rows
        for section in range(wanted["sections"])
    )
    return Result(summary={"framework": wanted["framework"], "evidence": pieces}, records=pieces)


PIPELINES = (cost_billing, security_audit, compliance_report)
"""The pipelines of the demo."""
