-- migration: handled
-- breaking: no
-- What consumers report with an ack or a nack: their service and revision, how they handled the
-- message and for how long. Null if they do not report it.

-- both
ALTER TABLE settled ADD COLUMN service text;
ALTER TABLE settled ADD COLUMN revision text;
ALTER TABLE settled ADD COLUMN handled_as text;
ALTER TABLE settled ADD COLUMN handled_us bigint;
ALTER TABLE delivery_failures ADD COLUMN service text;
ALTER TABLE delivery_failures ADD COLUMN revision text;
ALTER TABLE delivery_failures ADD COLUMN handled_as text;
ALTER TABLE delivery_failures ADD COLUMN handled_us bigint;
