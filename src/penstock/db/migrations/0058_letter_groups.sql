-- migration: letter_groups
-- breaking: no
-- Open dead letters of a group, of one origin and error type, are listed and counted by index.

-- both
CREATE INDEX dead_letters_open_of_processor_error
    ON dead_letters (processor, error_type, dead_letter_id) WHERE status = 'open';
CREATE INDEX dead_letters_open_of_subscription_error
    ON dead_letters (subscription, error_type, dead_letter_id) WHERE status = 'open';
