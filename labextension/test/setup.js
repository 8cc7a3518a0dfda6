// What Chromium has and jsdom lacks.
const { TextDecoder, TextEncoder } = require('util');
Object.assign(globalThis, { TextDecoder, TextEncoder });
if (!('DragEvent' in globalThis)) {
  globalThis.DragEvent = class DragEvent extends Event {};
}
globalThis.matchMedia ??= () => ({
  matches: false,
  addListener() {},
  removeListener() {},
  addEventListener() {},
  removeEventListener() {}
});
globalThis.fetch ??= () => Promise.reject(new Error('no network in tests'));
globalThis.Request ??= class {};
globalThis.Response ??= class {};
globalThis.Headers ??= class {};
globalThis.structuredClone ??= value => JSON.parse(JSON.stringify(value));
