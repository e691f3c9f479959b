// An MQTT.js client that exchanges messages of every quality with itself and tells what it
// got, one JSON value a line. Called by test_clients.py: node mqttjs.cjs URL PREFIX [CA]
const fs = require("node:fs");
const mqtt = require("mqtt");

const [url, prefix, ca] = process.argv.slice(2);
const options = { protocolVersion: 4, connectTimeout: 8000, reconnectPeriod: 0 };
if (ca) options.ca = fs.readFileSync(ca);

const fail = (error) => {
  console.error(String(error));
  process.exit(1);
};
const timer = setTimeout(() => fail("no end within 15 s"), 15000);

const client = mqtt.connect(url, options);
client.on("error", fail);
client.on("close", () => fail("closed by the broker"));
client.on("connect", async (connack) => {
  console.log(JSON.stringify({ sessionPresent: connack.sessionPresent }));
  const granted = await client.subscribeAsync({ [`${prefix}/#`]: { qos: 2 } });
  console.log(JSON.stringify(granted.map((each) => [each.topic, each.qos])));
  const got = [];
  client.on("message", async (topic, payload, packet) => {
    got.push([topic, payload.toString(), packet.qos, packet.retain]);
    if (got.length < 4) return;
    got.sort();
    for (const each of got) console.log(JSON.stringify(each));
    await client.unsubscribeAsync(`${prefix}/#`);
    client.removeAllListeners("close");
    await client.endAsync();
    clearTimeout(timer); // and no exit(): it would cut off what stdout has not written yet
  });
  for (const qos of [0, 1, 2]) await client.publishAsync(`${prefix}/${qos}`, `q${qos}`, { qos });
  await client.publishAsync(`${prefix}/large`, "x".repeat(100000), { qos: 1, retain: true });
});
