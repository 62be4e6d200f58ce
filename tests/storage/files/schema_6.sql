PRAGMA user_version = 6;
PRAGMA application_id = 1348822379;
BEGIN TRANSACTION;
CREATE TABLE blocks (
    number   INTEGER PRIMARY KEY,
    entries  BLOB NOT NULL,
    payloads BLOB NOT NULL
);
INSERT INTO "blocks" VALUES(1,X'010101000300000014080000000000000000000500010300000001000000000000000100000000000000000100000000000000010000000000000040420F0000000000FFFFFFFFFFFFFFFF00000000000000000000000000000000000000000000000000000000000000000008000000000000000100000000000000000000000000000002000000000000000100000000000000000200000000000000020000000000000040420F0000000000FFFFFFFFFFFFFFFF00000000000000000000000000000000000000000000000000000000000000000008000000000000000200000000000000000000000000000003000000000000000400000000000000000100000000000000010000000000000040420F0000000000FFFFFFFFFFFFFFFF0000000000000000000000000000000000000000000000000000000000000000000D0000000000000003000000000000000000000000000000',X'6F6E653B69643D3174776F3B69643D327265643B6C6162656C3D726564');
CREATE TABLE dead_slots (
    number   INTEGER PRIMARY KEY,
    rows     BLOB NOT NULL,
    payloads BLOB NOT NULL
);
CREATE TABLE entities (
    entity_id       INTEGER PRIMARY KEY,
    namespace       TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    path            TEXT    NOT NULL,
    definition      TEXT    NOT NULL,
    created_time_ms INTEGER NOT NULL,
    updated_time_ms INTEGER NOT NULL
);
INSERT INTO "entities" VALUES(1,'ns','queue','q','{"$class":"QueueDefinition","authorization_rules":[{"$class":"AuthorizationRule","created_time":"","modified_time":"","name":"k","primary_key":"pppppppppppppppppppppppppppppppppppppppppppp","rights":{"$value":"set","of":["Send"]},"secondary_key":"ssssssssssssssssssssssssssssssssssssssssssss"}],"auto_delete_on_idle_ms":922337203685477,"dead_lettering_on_expiration":false,"default_time_to_live_ms":922337203685477,"duplicate_window_ms":600000,"enable_batched_operations":true,"enable_express":false,"enable_partitioning":false,"finer_ticks":[],"forward_dead_letters_to":null,"forward_dead_letters_to_scheme":"sb","forward_to":null,"forward_to_scheme":"sb","lock_duration_ms":30000,"max_delivery_count":10,"max_message_size_kilobytes":null,"max_size_megabytes":null,"requires_duplicate_detection":true,"requires_session":false,"status":{"$value":"status","of":"Active"},"support_ordering":true,"user_metadata":null}',1000000,1000000);
INSERT INTO "entities" VALUES(2,'ns','queue','sessions','{"$class":"QueueDefinition","authorization_rules":[],"auto_delete_on_idle_ms":922337203685477,"dead_lettering_on_expiration":false,"default_time_to_live_ms":922337203685477,"duplicate_window_ms":600000,"enable_batched_operations":true,"enable_express":false,"enable_partitioning":false,"finer_ticks":[],"forward_dead_letters_to":null,"forward_dead_letters_to_scheme":"sb","forward_to":null,"forward_to_scheme":"sb","lock_duration_ms":30000,"max_delivery_count":10,"max_message_size_kilobytes":null,"max_size_megabytes":null,"requires_duplicate_detection":false,"requires_session":true,"status":{"$value":"status","of":"Active"},"support_ordering":true,"user_metadata":null}',1000000,1000000);
INSERT INTO "entities" VALUES(3,'ns','topic','t','{"$class":"TopicDefinition","authorization_rules":[],"auto_delete_on_idle_ms":922337203685477,"default_time_to_live_ms":922337203685477,"duplicate_window_ms":600000,"enable_batched_operations":true,"enable_express":false,"enable_partitioning":false,"filtering_messages_before_publishing":false,"finer_ticks":[],"max_message_size_kilobytes":null,"max_size_megabytes":null,"requires_duplicate_detection":false,"status":{"$value":"status","of":"Active"},"support_ordering":true,"user_metadata":null}',1000000,1000000);
INSERT INTO "entities" VALUES(4,'ns','subscription','t/Subscriptions/all','{"$class":"SubscriptionDefinition","auto_delete_on_idle_ms":922337203685477,"dead_lettering_on_expiration":false,"dead_lettering_on_filter_errors":true,"default_time_to_live_ms":922337203685477,"enable_batched_operations":true,"finer_ticks":[],"forward_dead_letters_to":null,"forward_dead_letters_to_scheme":"sb","forward_to":null,"forward_to_scheme":"sb","lock_duration_ms":30000,"max_delivery_count":10,"requires_session":false,"rules":[],"status":{"$value":"status","of":"Active"},"user_metadata":null}',1000000,1000000);
INSERT INTO "entities" VALUES(5,'ns','subscription','t/Subscriptions/no-rules','{"$class":"SubscriptionDefinition","auto_delete_on_idle_ms":922337203685477,"dead_lettering_on_expiration":false,"dead_lettering_on_filter_errors":true,"default_time_to_live_ms":922337203685477,"enable_batched_operations":true,"finer_ticks":[],"forward_dead_letters_to":null,"forward_dead_letters_to_scheme":"sb","forward_to":null,"forward_to_scheme":"sb","lock_duration_ms":30000,"max_delivery_count":10,"requires_session":false,"rules":[],"status":{"$value":"status","of":"Active"},"user_metadata":null}',1000000,1000000);
INSERT INTO "entities" VALUES(6,'ns','subscription','t/Subscriptions/some','{"$class":"SubscriptionDefinition","auto_delete_on_idle_ms":922337203685477,"dead_lettering_on_expiration":false,"dead_lettering_on_filter_errors":true,"default_time_to_live_ms":922337203685477,"enable_batched_operations":true,"finer_ticks":[],"forward_dead_letters_to":null,"forward_dead_letters_to_scheme":"sb","forward_to":null,"forward_to_scheme":"sb","lock_duration_ms":30000,"max_delivery_count":3,"requires_session":false,"rules":[],"status":{"$value":"status","of":"Active"},"user_metadata":null}',1000000,1000000);
CREATE TABLE journal (
    store_id BLOB NOT NULL,
    moved_number INTEGER NOT NULL
);
INSERT INTO "journal" VALUES(X'3920ED81D7603958509BA50FCCDFC545',3);
CREATE TABLE message_ids (
    entity_id  INTEGER NOT NULL,
    message_id TEXT    NOT NULL,
    until_ms   INTEGER NOT NULL,
    PRIMARY KEY (entity_id, message_id)
) WITHOUT ROWID;
INSERT INTO "message_ids" VALUES(1,'1',1600000);
INSERT INTO "message_ids" VALUES(1,'2',1600000);
CREATE TABLE namespaces (
    name       TEXT PRIMARY KEY,
    definition TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE payloads (
    id          INTEGER PRIMARY KEY,
    annotations BLOB NOT NULL,
    body        BLOB NOT NULL
);
CREATE TABLE recent_commits (
    slot INTEGER PRIMARY KEY,
    part BLOB NOT NULL
);
CREATE TABLE rules (
    entity_id  INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    definition TEXT    NOT NULL,
    PRIMARY KEY (entity_id, number)
) WITHOUT ROWID;
INSERT INTO "rules" VALUES(4,1,'{"$class":"RuleDefinition","action":null,"created_time_ms":1000000,"filter":{"$class":"TrueFilter"},"name":"$Default"}');
INSERT INTO "rules" VALUES(6,1,'{"$class":"RuleDefinition","action":null,"created_time_ms":1000000,"filter":{"$class":"FalseFilter"},"name":"none"}');
INSERT INTO "rules" VALUES(6,2,'{"$class":"RuleDefinition","action":{"$class":"SqlAction","expression":"SET x = @y","parameters":{"$map":[["@y",1.5]]}},"created_time_ms":1000000,"filter":{"$class":"SqlFilter","expression":"colour = @c","parameters":{"$map":[["@c","red"]]}},"name":"Sql"}');
INSERT INTO "rules" VALUES(6,3,'{"$class":"RuleDefinition","action":null,"created_time_ms":999995,"filter":{"$class":"CorrelationFilter","content_type":null,"correlation_id":null,"label":"red","message_id":null,"properties":{"$map":[["bytes",{"$value":"bytes","of":"AP8="}],["uuid",{"$value":"uuid","of":"00000000-0000-0000-0000-000000000005"}],["at",{"$value":"datetime","of":"2030-01-02T03:04:05.123456+00:00"}],["local",{"$value":"datetime","of":"2030-01-02T03:04:05"}],["for",{"$value":"timespan-ticks","of":8640015000000}],["none",null],["yes",true],["long",{"$value":"long","of":5}],["text","quoted \" text, f\u00fcr"],["infinite",{"$value":"double","of":"INF"}]]},"reply_to":null,"reply_to_session_id":null,"session_id":null,"to":null},"name":"Typed"}');
CREATE TABLE sequence_numbers (
    entity_id       INTEGER NOT NULL,
    sub_queue       INTEGER NOT NULL,
    sequence_number INTEGER NOT NULL,
    PRIMARY KEY (entity_id, sub_queue)
) WITHOUT ROWID;
INSERT INTO "sequence_numbers" VALUES(1,0,2);
INSERT INTO "sequence_numbers" VALUES(4,0,1);
CREATE TABLE session_states (
    entity_id       INTEGER NOT NULL,
    session_id      TEXT    NOT NULL,
    updated_time_ms INTEGER NOT NULL,
    state           BLOB    NOT NULL,
    PRIMARY KEY (entity_id, session_id)
);
INSERT INTO "session_states" VALUES(2,'session',1000000,X'7374617465');
CREATE INDEX message_ids_by_time ON message_ids (entity_id, until_ms);
COMMIT;
