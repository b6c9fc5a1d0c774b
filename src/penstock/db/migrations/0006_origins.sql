-- migration: origins
-- breaking: no
-- Where work came from: the message that opened a flow, and whose completion led to a start. New
-- columns of tables that stand behind the wall already.

-- both
ALTER TABLE flows ADD COLUMN message_id text;
ALTER TABLE flows ADD COLUMN subscription text;
ALTER TABLE triggers ADD COLUMN parent_processor text;
