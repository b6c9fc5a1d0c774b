"""The SaaS demo: bills, audits and reports of 1,000 customers.

Register it with `penstock pipelines register penstock.demo.saas`.
"""

from penstock.demo.saas.pipelines import (
    PIPELINES,
    audit_account,
    build_report,
    compliance_report,
    cost_billing,
    export_costs,
    security_audit,
)

__all__ = [
    "PIPELINES",
    "audit_account",
    "build_report",
    "compliance_report",
    "cost_billing",
    "export_costs",
    "security_audit",
]
