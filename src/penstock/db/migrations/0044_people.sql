-- migration: people
-- breaking: no
-- Sessions of people whom an identity provider knows, and where each session was opened.

-- both
-- person: e-mail address, with the role and customer that the settings gave it; NULL for a session
-- of a key. address and agent: where the session was opened, for its list.
ALTER TABLE logins ADD COLUMN person text;
ALTER TABLE logins ADD COLUMN role text;
ALTER TABLE logins ADD COLUMN customer_id text;
ALTER TABLE logins ADD COLUMN address text NOT NULL DEFAULT '';
ALTER TABLE logins ADD COLUMN agent text NOT NULL DEFAULT '';
CREATE INDEX logins_of_key ON logins (key_id, person);
