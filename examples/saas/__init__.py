"""A small SaaS platform: bills, audits and reports for many customers.

The declarations live where an installed Penstock finds them too (`penstock demo` plays a day of
them); this package offers the same names:

    penstock demo
    penstock up --pipelines examples.saas
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
