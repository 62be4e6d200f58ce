// The official JavaScript SDK against a running broker, used as its documentation says.
// Without arguments every scenario runs; `read-types QUEUE WRITER` reads what another client wrote, and `faults` runs
// the scenarios with faults.

import { readFileSync } from "node:fs";
import { run, skip } from "../node/trial.mjs";
import * as administration from "./administration.mjs";
import * as claims from "./claims.mjs";
import * as connecting from "./connecting.mjs";
import * as faults from "./faults.mjs";
import * as receiving from "./receiving.mjs";
import * as refusals from "./refusals.mjs";
import * as sending from "./sending.mjs";
import * as sessions from "./sessions.mjs";
import * as topics from "./topics.mjs";
import * as types from "./types.mjs";

const SHORT = true;
const NO_TRANSACTIONS = "the SDK has no transactions";
const installed = (name) =>
  JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
const versions = {
  "@azure/service-bus": installed("@azure/service-bus"),
  node: process.versions.node,
};

const scenarios = [
  ["connect-emulator-string", connecting.emulatorString, SHORT],
  ["connect-tls", connecting.tls, SHORT],
  ["connect-tls-emulator-flag", skip("with the emulator flag the SDK always connects in plain text")],
  ["connect-websocket", connecting.webSocket],
  ["send-one", sending.sendOne, SHORT],
  ["send-many", sending.sendMany],
  ["send-batch", sending.sendBatch],
  ["full-batch", claims.fullBatch],
  ["send-1mb", sending.sendMegabyte],
  ["receive-no-prefetch", receiving.receiveNoPrefetch],
  ["receive-prefetch", skip("the SDK does not prefetch")],
  ["processor", receiving.processor],
  ["complete", receiving.complete, SHORT],
  ["abandon-with-properties", receiving.abandonWithProperties],
  ["defer-and-fetch", receiving.deferAndFetch],
  ["dead-letter-and-read-back", receiving.deadLetterAndReadBack, SHORT],
  ["receive-and-delete", receiving.receiveAndDelete],
  ["peek", receiving.peek],
  ["purge-empty", skip("the SDK deletes no messages")],
  ["renew-lock", receiving.renewLock],
  ["concurrent-management", receiving.concurrentManagement],
  ["auto-renew-lock", receiving.autoRenewLock],
  ["auto-renew-ten", receiving.autoRenewTen],
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
  ["topic-true-filter", topics.trueFilter],
  ["topic-sql-filter", topics.sqlFilter, SHORT],
  ["topic-correlation-filter", topics.correlationFilter],
  ["rule-management", topics.ruleManagement],
  ["transaction-commit", skip(NO_TRANSACTIONS)],
  ["transaction-rollback", skip(NO_TRANSACTIONS)],
  ["transaction-rollback-then-settle", skip(NO_TRANSACTIONS)],
  ["transaction-other-connection", skip(NO_TRANSACTIONS)],
  ["admin-queue-crud", administration.queues, SHORT],
  ["admin-topic-crud", administration.topics],
  ["admin-subscription-crud", administration.subscriptions],
  ["admin-rule-crud", administration.rules],
  ["rule-value-precision", administration.ruleValuePrecision],
  ["admin-runtime-properties", administration.runtimeProperties],
  ["duplicate-detection", sending.duplicateDetection],
  ["time-to-live", sending.timeToLive],
  ["forwarding", sending.forwarding],
  ["forwarding-round-trip", sending.forwardingRoundTrip],
  ["properties-round-trip", types.roundTrip],
  ["error-not-found", refusals.notFound],
  ["error-not-found-operations", refusals.notFoundOperations],
  ["error-unauthorized", refusals.unauthorized],
  ["strict-claims", claims.claims],
  ["error-quota", refusals.quota],
  ["error-too-large", refusals.tooLarge],
  ["error-session-held", sessions.held],
  ["reconnect-after-restart", connecting.reconnectAfterRestart],
  ["clean-close", connecting.cleanClose],
];

const [command, queue] = process.argv.slice(2);
if (command === "read-types") await run(versions, [["read-types", types.readTypes(queue), SHORT]]);
else if (command === "faults") await run(versions, faults.scenarios);
else await run(versions, scenarios);
