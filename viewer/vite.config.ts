import { createHash } from "node:crypto";
import { defineConfig, type Plugin } from "vite";

const DATA = '<script type="application/json" id="regard-data">null</script>';

function hashSource(code: string): string {
  return `'sha256-${createHash("sha256").update(code, "utf8").digest("base64")}'`;
}

/** Put the one script and the one style sheet into the page, and allow exactly those two by their hashes. */
function singleFile(): Plugin {
  return {
    name: "regard-single-file",
    enforce: "post",
    generateBundle(_options, bundle) {
      const take = (ending: string): string => {
        const names = Object.keys(bundle).filter((name) => name.endsWith(ending));
        if (names.length !== 1) throw new Error(`expected one ${ending} in the bundle, found ${names.length}`);
        const output = bundle[names[0]];
        if (!ending.endsWith("html")) delete bundle[names[0]];
        return (output.type === "chunk" ? output.code : String(output.source)).trim();
      };
      const script = take(".js");
      const style = take(".css");
      if (/<\/script|<!--/i.test(script) || /<\/style/i.test(style))
        throw new Error("inline code would end its own tag");
      const policy = [
        "default-src 'none'",
        `script-src ${hashSource(script)}`,
        `style-src ${hashSource(style)}`,
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
      ].join("; ");
      const html = take(".html")
        .replace(/<script type="module"[^>]*><\/script>\s*/g, "")
        .replace(/<link rel="stylesheet"[^>]*>\s*/g, "")
        .replace("<!-- policy -->", () => `<meta http-equiv="Content-Security-Policy" content="${policy}">`)
        .replace("<!-- style -->", () => `<style>${style}</style>`)
        .replace("<!-- script -->", () => `<script>${script}</script>`);
      if (html.split(DATA).length !== 2) throw new Error("the page must hold exactly one empty data block");
      const page = Object.values(bundle).find((output) => output.fileName.endsWith(".html"));
      if (page?.type !== "asset") throw new Error("no page in the bundle");
      page.source = `${html}\n`;
      page.fileName = "viewer.html";
    },
  };
}

export default defineConfig({
  plugins: [singleFile()],
  build: {
    target: "es2022",
    outDir: "../src/regard/view/static",
    emptyOutDir: false,
    cssCodeSplit: false,
    modulePreload: false,
    assetsInlineLimit: 0,
    rollupOptions: { output: { format: "iife" } },
  },
  test: { environment: "node", include: ["test/**/*.test.ts"] },
} as Parameters<typeof defineConfig>[0]);
