"""A small SaaS platform: bills, audits and reports for many customers.

The declarations are in the package, so that an installed Penstock has them too (`penstock demo
saas` runs a day of them); this package offers the same names:

    penstock demo saas
    penstock up --pipelines examples.saas
"""

from penstock.demo.saas import (
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
