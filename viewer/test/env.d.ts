/** The one thing the tests use of node (its types are not worth a dependency). */
declare module "node:zlib" {
  export function deflateSync(bytes: Uint8Array): { toString(encoding: "base64"): string };
}
