-- migration: letter_lists
-- breaking: no
-- Open dead letters, and those of a processor, are listed by index even if most are resolved.

-- both
CREATE INDEX dead_letters_open_by_id ON dead_letters (dead_letter_id) WHERE status = 'open';
CREATE INDEX dead_letters_open_of_processor ON dead_letters (processor, dead_letter_id)
    WHERE status = 'open';
