// Shared access signatures. SHA-256 is here because browsers have it only on pages over TLS or on localhost.

const encoder = new TextEncoder();
const ROUNDS = new Uint32Array(64);
const START = new Uint32Array(8);
{
  // The constants of FIPS 180-4: fractional parts of the roots of the first primes.
  let count = 0;
  const fraction = (value) => ((value - Math.floor(value)) * 2 ** 32) >>> 0;
  for (let candidate = 2; count < 64; candidate += 1) {
    let isPrime = true;
    for (let divisor = 2; divisor * divisor <= candidate; divisor += 1) if (candidate % divisor === 0) isPrime = false;
    if (!isPrime) continue;
    if (count < 8) START[count] = fraction(Math.sqrt(candidate));
    ROUNDS[count] = fraction(Math.cbrt(candidate));
    count += 1;
  }
}

const rotate = (word, places) => (word >>> places) | (word << (32 - places));

export function sha256(data) {
  const length = data.length;
  const padded = new Uint8Array(((length + 8) >> 6) * 64 + 64);
  padded.set(data);
  padded[length] = 0x80;
  const view = new DataView(padded.buffer);
  view.setUint32(padded.length - 8, Math.floor(length / 2 ** 29));
  view.setUint32(padded.length - 4, (length * 8) >>> 0);
  const hash = new Uint32Array(START);
  const words = new Uint32Array(64);
  for (let start = 0; start < padded.length; start += 64) {
    for (let place = 0; place < 16; place += 1) words[place] = view.getUint32(start + place * 4);
    for (let place = 16; place < 64; place += 1) {
      const [early, late] = [words[place - 15], words[place - 2]];
      const first = rotate(early, 7) ^ rotate(early, 18) ^ (early >>> 3);
      const second = rotate(late, 17) ^ rotate(late, 19) ^ (late >>> 10);
      words[place] = words[place - 16] + first + words[place - 7] + second;
    }
    let [a, b, c, d, e, f, g, h] = hash;
    for (let place = 0; place < 64; place += 1) {
      const one = (h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + ((e & f) ^ (~e & g)) + ROUNDS[place] + words[place]) | 0;
      const two = ((rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))) | 0;
      [h, g, f, e, d, c, b, a] = [g, f, e, (d + one) | 0, c, b, a, (one + two) | 0];
    }
    [a, b, c, d, e, f, g, h].forEach((value, place) => {
      hash[place] += value;
    });
  }
  const result = new Uint8Array(32);
  hash.forEach((word, place) => new DataView(result.buffer).setUint32(place * 4, word));
  return result;
}

export function hmacSha256(key, data) {
  const block = new Uint8Array(64);
  block.set(key.length > 64 ? sha256(key) : key);
  const joined = (mask, content) => new Uint8Array([...block.map((one) => one ^ mask), ...content]);
  return sha256(joined(0x5c, sha256(joined(0x36, data))));
}

/** Returns a token for a resource, as SDKs make it. */
export function sign(resource, keyName, key, expiresAtS) {
  const encoded = encodeURIComponent(resource);
  const signature = hmacSha256(encoder.encode(key), encoder.encode(`${encoded}\n${expiresAtS}`));
  const text = encodeURIComponent(btoa(String.fromCharCode(...signature)));
  return `SharedAccessSignature sr=${encoded}&sig=${text}&se=${expiresAtS}&skn=${encodeURIComponent(keyName)}`;
}
