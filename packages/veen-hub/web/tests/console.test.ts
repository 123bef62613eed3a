import assert from "node:assert/strict";
import { test } from "node:test";
import { AuditLog, MAX_EVENTS } from "../src/console/audit.ts";
import { size, span, utc } from "../src/console/format.ts";
import { byLabel, parseMetrics, perSecond } from "../src/console/metrics.ts";
import { bodyText, dump } from "../src/console/message_body.ts";
import { Problems } from "../src/console/problems.ts";
import { linkTo, parseRoute } from "../src/console/router.ts";
import { fromHex, utf8 } from "../src/verify/wire/bytes.ts";

test("a link leads back to what it was made from, whatever the name contains", () => {
  for (const part of ["orders/eu", "a#b", "<b>", "100%", "\u202e"]) {
    assert.deepEqual(parseRoute(linkTo("streams", part, 7)), { screen: "streams", parts: [part, "7"] });
  }
  assert.deepEqual(parseRoute(""), { screen: "overview", parts: [] });
  assert.deepEqual(parseRoute("#/streams/%zz"), { screen: "streams", parts: ["%zz"] });
});

test("metrics are read with their labels, and a counter that was reset has no rate", () => {
  const samples = parseMetrics('# HELP x y\na_total 5\nb{code="E.\\"x"} 2\nc{stage="durable"} 7.0\nd +Inf\n');
  assert.equal(samples.get("a_total"), 5);
  assert.equal(samples.get("d"), Number.POSITIVE_INFINITY);
  assert.deepEqual([...byLabel(samples, "b")], [['E."x', 2]]);
  assert.deepEqual([...byLabel(samples, "c")], [["durable", 7]]);
  const [before, now] = [
    { at: 0, samples: new Map([["n", 10]]) },
    { at: 2_000, samples: new Map([["n", 14]]) },
  ];
  assert.equal(perSecond(before, now, "n"), 2);
  assert.equal(perSecond({ ...now, at: 0 }, { ...before, at: 1_000 }, "n"), undefined);
  assert.equal(perSecond(before, now, "absent"), undefined);
});

test("a lie stays and keeps its first reason; a silence ends", () => {
  const problems = new Problems(new AuditLog());
  problems.report("connection", "", "no answer", false);
  problems.report("streams", "a", "first", true);
  problems.report("streams", "a", "second", true);
  assert.deepEqual(
    problems.all.value.map((each) => each.reason),
    ["no answer", "first"],
  );
  problems.recovered("connection");
  problems.recovered("streams", "a");
  assert.deepEqual(
    problems.all.value.map((each) => each.reason),
    ["first"],
  );
  problems.report("hub log", "", "no answer", false);
  problems.report("hub log", "", "forked", true);
  assert.equal(problems.of("hub log")?.reason, "forked");
});

test("the audit is bounded and says what it dropped", () => {
  const log = new AuditLog();
  for (let at = 0; at < MAX_EVENTS + 3; at += 1) log.add("request", `${at}`);
  assert.equal(log.events.value.length, MAX_EVENTS);
  assert.equal(log.events.value[0]?.text, "3");
  assert.equal(log.dropped, 3);
});

test("times and sizes are written for people", () => {
  assert.equal(utc(1_700_000_040), "2023-11-14 22:14:00");
  assert.equal(span(61), "1 min 1 s");
  assert.equal(span(90_000), "1 d 1 h");
  assert.equal(size(1_536), "1.5 KiB");
  assert.equal(size(12), "12 B");
});

test("a body is shown as a record, as text, or as bytes", () => {
  const bytes = (digits: string) => fromHex(digits) as Uint8Array<ArrayBuffer>;
  assert.equal(bodyText(utf8("two coffees\n{1}")), "two coffees\n{1}");
  assert.equal(bodyText(bytes("a2616101616242ff00")), `{"a": 1, "b": h'ff00'}`);
  assert.equal(bodyText(bytes("83f5f620")), "[true, null, -1]");
  assert.equal(bodyText(bytes("a1616118")), "a1616118", "not canonical, and not text");
  assert.equal(bodyText(bytes("ff00")), "ff00");
  assert.equal(dump(bytes("4100")), `000000  ${"41 00".padEnd(47)}  A·`);
});
