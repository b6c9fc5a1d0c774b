-- migration: letters
-- breaking: no
-- Dead letters are found by what they came from, however many there are.

-- both
CREATE INDEX dead_letters_of_subscription ON dead_letters (subscription, dead_letter_id)
    WHERE subscription IS NOT NULL;
CREATE INDEX dead_letters_of_cause ON dead_letters (correlation_id) WHERE correlation_id IS NOT NULL;
