-- migration: bus
-- breaking: no
-- What a bound key may do on the bus: replays and seeks prolong the life of their messages.

-- only: postgres
CREATE FUNCTION tenant_rules_0012()
RETURNS TABLE (relation text, privileges text, condition text, seen text) LANGUAGE sql STABLE AS
$$
SELECT 'messages', 'SELECT, INSERT, UPDATE (expires_at)', 'customer = (SELECT tenant_customer())', CAST(NULL AS text)
$$;
SELECT tenant_wall();
