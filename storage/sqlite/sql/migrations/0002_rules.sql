-- Rules get rows of their own: creating one must not write the others again.
--
-- Until now they were part of their subscription's definition. SQLite's JSON functions cannot take
-- them out, since definitions may hold NaN and Infinity, so `storage/sqlite/migrations.py` lends its own:
-- rules_in_definition gives an array of the texts of the rules, in their order, and
-- definition_without_rules the rest.

CREATE TABLE rules (
    entity_id  INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    definition TEXT    NOT NULL,
    PRIMARY KEY (entity_id, number)
) WITHOUT ROWID;

INSERT INTO rules (entity_id, number, definition)
SELECT entities.entity_id, texts.key + 1, texts.value
FROM entities, json_each(rules_in_definition(entities.definition)) AS texts
WHERE entities.kind = 'subscription';

UPDATE entities SET definition = definition_without_rules(definition)
WHERE kind = 'subscription';
