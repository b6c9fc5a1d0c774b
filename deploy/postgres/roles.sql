-- Roles with the least rights that Penstock needs. Run it as a superuser in Penstock's database, before the first migration:
--   psql -v ON_ERROR_STOP=1 --single-transaction --dbname=penstock --file=deploy/postgres/roles.sql
-- It may be repeated at any time: run it again after a restore into another cluster, and in a database whose tables existed before.
-- penstock_owner migrates the schema (penstock db migrate) and runs the scheduler, whose upkeep creates partitions and vacuums.
-- penstock_app runs workers and the API. It cannot change the schema, and it can add to the journal, its seals and the audit log
-- but not change or delete what they have. penstock_tenant is the role of requests whose API key is bound to a customer: row-level
-- security confines it. penstock_app bypasses row-level security until it takes that role.
-- Set passwords with \password, or authenticate by certificate.
-- Where the administrator may not create event triggers, switch them off, and run this file again after every migration:
--   PGOPTIONS='-c penstock_roles.event_trigger=off' psql …
-- An administrator who is no superuser needs CREATEROLE and BYPASSRLS, and owns the database.
DO $roles$
BEGIN
    IF to_regrole('penstock_tenant') IS NULL THEN
        CREATE ROLE penstock_tenant;
    END IF;
    IF to_regrole('penstock_owner') IS NULL THEN
        CREATE ROLE penstock_owner;
    END IF;
    IF to_regrole('penstock_app') IS NULL THEN
        CREATE ROLE penstock_app;
    END IF;
END
$roles$;
ALTER ROLE penstock_tenant NOLOGIN NOINHERIT;
ALTER ROLE penstock_owner LOGIN;
ALTER ROLE penstock_app LOGIN BYPASSRLS;
-- Only a superuser changes the rights of a role's tables without being its member.
DO $member$
BEGIN
    IF NOT (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN
        GRANT penstock_owner TO CURRENT_USER;
    END IF;
END
$member$;
GRANT penstock_tenant TO penstock_owner;
GRANT penstock_tenant TO penstock_app;
GRANT CREATE, USAGE ON SCHEMA public TO penstock_owner;
GRANT USAGE ON SCHEMA public TO penstock_app, penstock_tenant;

-- Tables that exist, and those of later migrations.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO penstock_app;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO penstock_app;
ALTER DEFAULT PRIVILEGES FOR ROLE penstock_owner IN SCHEMA public
    GRANT SELECT, INSERT ON TABLES TO penstock_app;
ALTER DEFAULT PRIVILEGES FOR ROLE penstock_owner IN SCHEMA public
    GRANT USAGE, SELECT ON SEQUENCES TO penstock_app;

-- Tables that are only added to, and the weekly partitions of the journal. Default privileges cannot name tables, so an event
-- trigger takes the rights away when one is created, by a migration or by the scheduler. It runs for every role that creates a
-- table, superusers included: its functions are in a schema of the superuser who runs this file, they name the schema of all that
-- they call, and they look at tables in public only. An older version of this file had them in public.
DROP EVENT TRIGGER IF EXISTS penstock_table_made;
DROP FUNCTION IF EXISTS public.penstock_table_made();
DROP FUNCTION IF EXISTS public.penstock_append_only(oid);
DROP SCHEMA IF EXISTS penstock_admin CASCADE;
CREATE SCHEMA penstock_admin;
REVOKE ALL ON SCHEMA penstock_admin FROM PUBLIC;
CREATE FUNCTION penstock_admin.append_only(made oid) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS
$append$
BEGIN
    IF coalesce(pg_partition_root(made), made) IN (
        to_regclass('public.journal'), to_regclass('public.seals'), to_regclass('public.audit'))
    THEN
        EXECUTE format('REVOKE UPDATE, DELETE, TRUNCATE ON %s FROM penstock_app', made::regclass);
    END IF;
END
$append$;
CREATE FUNCTION penstock_admin.table_made() RETURNS event_trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp AS
$made$
BEGIN
    PERFORM penstock_admin.append_only(objid) FROM pg_event_trigger_ddl_commands()
    WHERE classid = 'pg_class'::regclass AND object_type = 'table' AND schema_name = 'public';
END
$made$;
-- Without the event trigger, penstock_app only adds to a later table until this file runs again, because partitions of the journal
-- are created between migrations. Rows of the other partitions are reached through their tables, whose rights apply.
DO $trigger$
BEGIN
    IF coalesce(nullif(current_setting('penstock_roles.event_trigger', true), ''), 'on')::boolean THEN
        CREATE EVENT TRIGGER penstock_table_made ON ddl_command_end WHEN TAG IN ('CREATE TABLE')
            EXECUTE FUNCTION penstock_admin.table_made();
        ALTER DEFAULT PRIVILEGES FOR ROLE penstock_owner IN SCHEMA public
            GRANT UPDATE, DELETE ON TABLES TO penstock_app;
    ELSE
        ALTER DEFAULT PRIVILEGES FOR ROLE penstock_owner IN SCHEMA public
            REVOKE UPDATE, DELETE ON TABLES FROM penstock_app;
    END IF;
END
$trigger$;
DO $existing$
BEGIN
    PERFORM penstock_admin.append_only(oid) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p');
END
$existing$;
