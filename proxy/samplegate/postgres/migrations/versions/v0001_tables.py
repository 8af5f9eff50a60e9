"""Tables for reviews, limits and the decision log.

Text that is compared or sorted has the collation C, so that it is sorted by its bytes as in SQLite. Rows of
``accounts`` change often: half of each page is left free, and no index contains a changing column, so that an update
stays in its page. ``decisions`` has one partition for each day; ``database migrate`` makes and drops them.
"""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None
least_reader = "0001"

_STATEMENTS = """
CREATE TABLE samplegate.compatibility(least_reader text NOT NULL);
INSERT INTO samplegate.compatibility VALUES('0001');

CREATE TABLE samplegate.reviews(
    id varchar COLLATE "C" PRIMARY KEY,
    lookup varchar COLLATE "C" NOT NULL,
    digest varchar COLLATE "C" NOT NULL,
    stage varchar COLLATE "C" NOT NULL,
    reviewer varchar COLLATE "C" NOT NULL,
    server varchar COLLATE "C" NOT NULL,
    kind varchar COLLATE "C" NOT NULL,
    created double precision NOT NULL,
    expires double precision NOT NULL,
    late double precision NOT NULL,
    announced boolean NOT NULL,
    state varchar COLLATE "C" NOT NULL,
    decided double precision,
    who varchar COLLATE "C" NOT NULL,
    door varchar COLLATE "C",
    waiter varchar COLLATE "C",
    held_until double precision NOT NULL,
    answers_until double precision,
    used_by varchar COLLATE "C",
    used double precision,
    verdict text,
    body text NOT NULL
);
CREATE INDEX reviews_lookup ON samplegate.reviews(lookup, used_by, state, expires);
CREATE INDEX reviews_state_created ON samplegate.reviews(state, created, id, reviewer, server, kind);
CREATE INDEX reviews_created ON samplegate.reviews(created, id, reviewer, server, kind);
CREATE INDEX reviews_state_expires ON samplegate.reviews(state, expires);
CREATE INDEX reviews_decided ON samplegate.reviews(decided);
CREATE INDEX reviews_waiter ON samplegate.reviews(waiter);

CREATE TABLE samplegate.review_events(
    number bigint PRIMARY KEY,
    review varchar COLLATE "C" NOT NULL,
    at double precision NOT NULL,
    what varchar COLLATE "C" NOT NULL,
    who varchar COLLATE "C" NOT NULL,
    door varchar COLLATE "C" NOT NULL,
    detail varchar COLLATE "C" NOT NULL
);
CREATE INDEX review_events_review ON samplegate.review_events(review, number);

CREATE TABLE samplegate.review_deliveries(
    id varchar COLLATE "C" PRIMARY KEY,
    review varchar COLLATE "C" NOT NULL,
    reviewer varchar COLLATE "C" NOT NULL,
    event varchar COLLATE "C" NOT NULL,
    created double precision NOT NULL,
    due double precision NOT NULL,
    tries integer NOT NULL,
    state varchar COLLATE "C" NOT NULL,
    taker varchar COLLATE "C",
    held_until double precision NOT NULL,
    said varchar COLLATE "C" NOT NULL
);
CREATE INDEX review_deliveries_due ON samplegate.review_deliveries(state, due);
CREATE INDEX review_deliveries_review ON samplegate.review_deliveries(review);

CREATE TABLE samplegate.review_facts(name varchar COLLATE "C" PRIMARY KEY, number bigint, value bytea);
INSERT INTO samplegate.review_facts VALUES('events', 0, NULL);

CREATE TABLE samplegate.accounts(
    limit_name text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    level bigint NOT NULL,
    stamp double precision NOT NULL,
    warned boolean NOT NULL,
    PRIMARY KEY(limit_name, key)
) WITH (fillfactor = 50);

CREATE TABLE samplegate.slots(
    limit_name text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    holder text COLLATE "C" NOT NULL,
    id text COLLATE "C" NOT NULL,
    amount bigint NOT NULL,
    PRIMARY KEY(limit_name, key, holder, id)
);
CREATE INDEX slots_holder ON samplegate.slots(holder);

CREATE TABLE samplegate.holders(
    name text COLLATE "C" PRIMARY KEY,
    held_until double precision NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE samplegate.decisions(
    id bigint GENERATED ALWAYS AS IDENTITY,
    time varchar COLLATE "C" NOT NULL,
    decision_id varchar COLLATE "C" NOT NULL,
    server varchar COLLATE "C" NOT NULL,
    caller varchar COLLATE "C" NOT NULL,
    kind varchar COLLATE "C" NOT NULL,
    outcome varchar COLLATE "C" NOT NULL,
    rule varchar COLLATE "C",
    record text NOT NULL,
    PRIMARY KEY(time, id)
) PARTITION BY RANGE (time);
CREATE INDEX decisions_decision_id ON samplegate.decisions(decision_id);
CREATE INDEX decisions_id ON samplegate.decisions(id);
CREATE TABLE samplegate.decisions_other PARTITION OF samplegate.decisions DEFAULT
"""


def upgrade() -> None:
    """Create all tables in an empty schema."""
    for statement in _STATEMENTS.split(";\n"):
        op.execute(statement)
