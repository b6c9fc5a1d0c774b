-- migration: open_letters
-- breaking: no
-- Open dead letters of an error type or of a customer are listed and counted by index.

-- both
CREATE INDEX dead_letters_open_of_error ON dead_letters (error_type, dead_letter_id)
    WHERE status = 'open';
CREATE INDEX dead_letters_open_of_customer ON dead_letters (customer, dead_letter_id)
    WHERE status = 'open';
