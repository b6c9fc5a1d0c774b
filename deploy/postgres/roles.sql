-- Roles with the least rights that Penstock needs. Run it once as a superuser in Penstock's database:
--   psql --dbname=penstock --file=deploy/postgres/roles.sql
-- penstock_owner migrates the schema (penstock db migrate) and runs the scheduler, whose upkeep creates partitions and vacuums.
-- penstock_app runs workers and the API and cannot change the schema. penstock_tenant is the role of requests whose API key is
-- bound to a customer: row-level security confines it. penstock_app bypasses row-level security until it takes that role.
-- Set passwords with \password, or authenticate by certificate.
CREATE ROLE penstock_tenant NOLOGIN NOINHERIT;
CREATE ROLE penstock_owner LOGIN;
CREATE ROLE penstock_app LOGIN BYPASSRLS;
GRANT penstock_tenant TO penstock_owner;
GRANT penstock_tenant TO penstock_app;
GRANT CREATE, USAGE ON SCHEMA public TO penstock_owner;
GRANT USAGE ON SCHEMA public TO penstock_app;
ALTER DEFAULT PRIVILEGES FOR ROLE penstock_owner IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO penstock_app;
ALTER DEFAULT PRIVILEGES FOR ROLE penstock_owner IN SCHEMA public
    GRANT USAGE, SELECT ON SEQUENCES TO penstock_app;
