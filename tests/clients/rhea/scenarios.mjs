// A generic AMQP 1.0 library against a running broker: what the protocol alone can do.
// Without arguments every scenario runs; `read-types QUEUE WRITER` reads what another client wrote.

import { readFileSync } from "node:fs";
import { run, skip } from "../node/trial.mjs";
import * as claims from "./claims.mjs";
import * as connecting from "./connecting.mjs";
import * as receiving from "./receiving.mjs";
import * as sending from "./sending.mjs";
import * as sessions from "./sessions.mjs";
import * as types from "./types.mjs";

const SHORT = true;
const NO_ADMINISTRATION = "the library speaks AMQP only";
const NO_TRANSACTIONS = "the library has no transactions";
const { version } = JSON.parse(
  readFileSync(new URL("node_modules/rhea/package.json", import.meta.url)),
);
const versions = { rhea: version, node: process.versions.node };

const scenarios = [
  ["connect-emulator-string", connecting.emulatorString, SHORT],
  ["connect-tls", connecting.tls, SHORT],
  ["connect-tls-emulator-flag", skip("the library knows no such flag")],
  ["connect-websocket", connecting.webSocket],
  ["send-one", sending.sendOne, SHORT],
  ["send-many", sending.sendMany],
  ["send-batch", sending.sendBatch],
  ["full-batch", claims.fullBatch],
  ["send-1mb", sending.sendMegabyte],
  ["receive-no-prefetch", receiving.receiveNoPrefetch],
  ["receive-prefetch", receiving.receivePrefetch],
  ["processor", receiving.processor],
  ["complete", receiving.complete, SHORT],
  ["abandon-with-properties", receiving.abandonWithProperties],
  ["defer-and-fetch", receiving.deferAndFetch],
  ["dead-letter-and-read-back", receiving.deadLetterAndReadBack, SHORT],
  ["receive-and-delete", receiving.receiveAndDelete],
  ["peek", sending.peek],
  ["purge-empty", sending.purgeEmpty],
  ["renew-lock", receiving.renewLock],
  ["concurrent-management", receiving.concurrentManagement],
  ["auto-renew-lock", skip("the library knows no locks")],
  ["auto-renew-ten", skip("the library knows no locks")],
  ["lock-lost", receiving.lockLost],
  ["backup-settlement", receiving.backupSettlement],
  ["schedule", sending.schedule],
  ["cancel-scheduled", sending.cancelScheduled],
  ["session-named", sessions.named, SHORT],
  ["session-next-available", sessions.nextAvailable],
  ["session-two-holders", sessions.twoHolders],
  ["session-state", sessions.state],
  ["session-renew", sessions.renew],
  ["session-lock-lost", sessions.lockLost],
  ["session-none-available", sessions.noneAvailable],
  ["session-id-case", sessions.idCase],
  ["session-deferred-after-renewals", sessions.deferredAfterRenewals],
  ["topic-true-filter", receiving.trueFilter],
  ["topic-sql-filter", receiving.sqlFilter, SHORT],
  ["topic-correlation-filter", receiving.correlationFilter],
  ["rule-management", receiving.ruleManagement],
  ["transaction-commit", skip(NO_TRANSACTIONS)],
  ["transaction-rollback", skip(NO_TRANSACTIONS)],
  ["transaction-rollback-then-settle", skip(NO_TRANSACTIONS)],
  ["transaction-other-connection", skip(NO_TRANSACTIONS)],
  ["admin-queue-crud", skip(NO_ADMINISTRATION), SHORT],
  ["admin-topic-crud", skip(NO_ADMINISTRATION)],
  ["admin-subscription-crud", skip(NO_ADMINISTRATION)],
  ["admin-rule-crud", skip(NO_ADMINISTRATION)],
  ["rule-value-precision", skip(NO_ADMINISTRATION)],
  ["admin-runtime-properties", skip(NO_ADMINISTRATION)],
  ["duplicate-detection", sending.duplicateDetection],
  ["time-to-live", sending.timeToLive],
  ["forwarding", sending.forwarding],
  ["forwarding-round-trip", skip(NO_ADMINISTRATION)],
  ["properties-round-trip", types.roundTrip],
  ["error-not-found", sending.notFound],
  ["error-not-found-operations", sessions.notFoundOperations],
  ["error-unauthorized", connecting.unauthorized],
  ["strict-claims", claims.claims],
  ["error-quota", sending.quota],
  ["error-too-large", sending.tooLarge],
  ["error-session-held", sessions.heldByAnother],
  ["reconnect-after-restart", connecting.reconnectAfterRestart],
  ["clean-close", connecting.cleanClose],
];

const [command, queue] = process.argv.slice(2);
if (command === "read-types") await run(versions, [["read-types", types.readTypes(queue), SHORT]]);
else await run(versions, scenarios);
