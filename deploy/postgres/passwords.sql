-- Sets the passwords of the roles from the environment, when compose.yaml creates the database. Executed by psql.
\getenv owner OWNER_PASSWORD
\getenv app APP_PASSWORD
ALTER ROLE penstock_owner PASSWORD :'owner';
ALTER ROLE penstock_app PASSWORD :'app';
