import { defineConfig } from "vite";

// An agent to develop against: PARDA_AGENT=http://127.0.0.1:9843 npm run dev
const agent = process.env.PARDA_AGENT ?? "http://127.0.0.1:9843";

export default defineConfig({
  base: "./",
  build: {
    outDir: "../crates/http/page",
    emptyOutDir: true,
    license: { fileName: "licenses.md" },
    modulePreload: { polyfill: false },
    // Names without hashes: the agent embeds these three files, and tells browsers to ask again.
    rollupOptions: {
      output: { entryFileNames: "app.js", assetFileNames: "app[extname]" },
    },
  },
  server: { proxy: { "/api": agent } },
});
