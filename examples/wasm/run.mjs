// Runs the module under Node: node run.mjs polygrad_wasm.wasm
import { readFile } from "node:fs/promises";

const { instance } = await WebAssembly.instantiate(await readFile(process.argv[2]), {});
const { train } = instance.exports;
const first = train(1);
const start = performance.now();
const last = train(100);
const each = (performance.now() - start) / 100;
console.log(`loss after 1 step ${first.toFixed(4)}, after 100 ${last.toFixed(4)}; ${each.toFixed(1)} ms a step`);
if (!(last < first / 2)) {
    console.error("it did not learn");
    process.exit(1);
}
