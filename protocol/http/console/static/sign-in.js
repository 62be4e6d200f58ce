// Asks for a key or a token. With a key the page signs a token; the key itself is not kept.

import { html, useState } from "./vendor/htm-preact.module.js";
import { token } from "./api.js";
import { sign } from "./signature.js";

const VALID_S = 8 * 3600;

export default function SignIn({ refusal, signedIn }) {
  const [kind, setKind] = useState("key");
  const [name, setName] = useState("RootManageSharedAccessKey");
  const [key, setKey] = useState("");
  const [text, setText] = useState("");
  function submit(event) {
    event.preventDefault();
    if (kind === "key") {
      const given = readConnectionString(key);
      token.set(sign(`sb://${location.hostname}/`, given?.name ?? name.trim(), given?.key ?? key.trim(), Math.floor(Date.now() / 1000) + VALID_S));
    } else token.set(/^(SharedAccessSignature|Bearer) /i.test(text.trim()) ? text.trim() : `Bearer ${text.trim()}`);
    signedIn();
  }
  return html`<div class="page"><section class="panel sign-in" aria-labelledby="sign-in-title"><header><h1 id="sign-in-title">Sign in</h1></header>
    <form class="content stack" onSubmit=${submit}>
      <p>This broker uses strict authorization. The console shows and changes what your key or token allows: it needs Manage.</p>
      ${token.get() && html`<p class="bad" role="alert">${refusal}</p>`}
      <div class="segments" role="group" aria-label="Sign in with">
        <button type="button" aria-pressed=${kind === "key"} onClick=${() => setKind("key")}>Key</button>
        <button type="button" aria-pressed=${kind === "token"} onClick=${() => setKind("token")}>Token</button>
      </div>
      ${kind === "key"
        ? html`<label class="field"><span>Name of the key</span><input autocomplete="username" value=${name} onInput=${(event) => setName(event.target.value)} /></label>
            <label class="field"><span>Key or connection string</span><input type="password" autocomplete="current-password" required value=${key} onInput=${(event) => setKey(event.target.value)} /></label>`
        : html`<label class="field"><span>Shared access signature or bearer token</span><textarea rows="4" required spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)}></textarea></label>`}
      <p class="hint">A token that is valid for eight hours is kept for this tab. The key is not kept.</p>
      <div><button class="primary" type="submit">Sign in</button></div>
    </form></section></div>`;
}

function readConnectionString(text) {
  const fields = Object.fromEntries(text.split(";").map((part) => [part.slice(0, part.indexOf("=")).trim().toLowerCase(), part.slice(part.indexOf("=") + 1).trim()]));
  return fields.sharedaccesskey ? { name: fields.sharedaccesskeyname, key: fields.sharedaccesskey } : null;
}
