-- migration: alert_measures
-- breaking: no
-- Rules of alerts read the dead letters and failures of each origin, and imperfect phases, by index.

-- both
CREATE INDEX dead_letters_open_at_processor ON dead_letters (processor, died_at, customer)
    WHERE status = 'open' AND processor IS NOT NULL;
CREATE INDEX dead_letters_open_at_subscription ON dead_letters (subscription, died_at, customer)
    WHERE status = 'open' AND subscription IS NOT NULL;
CREATE INDEX dead_letters_open_without_origin ON dead_letters (died_at, customer)
    WHERE status = 'open' AND coalesce(processor, subscription) IS NULL;
CREATE INDEX delivery_failures_of_subscription ON delivery_failures (subscription, at);
CREATE INDEX phase_completion_log_imperfect ON phase_completion_log (inserted_at)
    WHERE overall_quality < 1;
