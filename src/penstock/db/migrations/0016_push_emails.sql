-- migration: push_emails
-- breaking: no
-- E-mail addresses that push tokens are signed for. An address belongs to the customer whose
-- subscription used it first (0: the system): receivers accept tokens by address and audience, so
-- no other customer may have tokens signed for it.

-- both
CREATE TABLE push_emails (
    email text PRIMARY KEY,
    customer bigint NOT NULL,
    created_at bigint NOT NULL
);

-- only: postgres
INSERT INTO push_emails (email, customer, created_at)
SELECT DISTINCT ON (e.email) e.email, e.customer, e.created_at
FROM (SELECT lower(s.push::json -> 'oidc_token' ->> 'service_account_email') AS email,
        s.customer, s.created_at, s.subscription
    FROM subscriptions s WHERE s.push IS NOT NULL) AS e
WHERE e.email IS NOT NULL ORDER BY e.email, e.subscription;
CREATE FUNCTION tenant_rules_0016()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT v.relation, v.privileges, v.condition, NULL
FROM (VALUES
    ('push_emails', 'SELECT, INSERT', '(SELECT tenant_customer()) IS NOT NULL AND customer = (SELECT tenant_customer())')
) AS v (relation, privileges, condition)
$$;
SELECT tenant_wall();

-- only: sqlite
INSERT INTO push_emails (email, customer, created_at)
SELECT e.email, e.customer, e.created_at
FROM (SELECT lower(json_extract(s.push, '$.oidc_token.service_account_email')) AS email,
        s.customer, s.created_at, min(s.subscription)
    FROM subscriptions s WHERE s.push IS NOT NULL GROUP BY 1) AS e
WHERE e.email IS NOT NULL;
