-- migration: run_quarters
-- breaking: no
-- The counters of ended runs say when runs of a processor ended, failed or were cancelled, so that lists
-- of all customers skip the time between. Only the aggregator writes these tables.

-- both
CREATE INDEX run_counts_of_processor ON run_counts (processor, at) WHERE customer = 0;
CREATE INDEX run_counts_failed ON run_counts (processor, at) WHERE customer = 0 AND failed > 0;
CREATE INDEX run_counts_cancelled ON run_counts (processor, at) WHERE customer = 0 AND cancelled > 0;
