-- migration: run_search
-- breaking: no
-- Indexes by which ended runs are found: correlation id, message and partition.

-- both
CREATE INDEX history_for_correlation ON history (correlation_id {{pg:COLLATE "C"}})
    WHERE correlation_id IS NOT NULL;
CREATE INDEX history_for_message ON history (trigger_message_id)
    WHERE trigger_message_id IS NOT NULL;
CREATE INDEX history_for_partition ON history (customer, partition {{pg:COLLATE "C"}})
    WHERE partition IS NOT NULL;
