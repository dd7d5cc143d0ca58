export { CipherSuite, DhkemX25519HkdfSha256, HkdfSha256, HpkeError } from "@hpke/core";
export { Chacha20Poly1305 } from "@hpke/chacha20poly1305";

/** ChaCha20-Poly1305 (RFC 8439): key of 32 bytes, nonce of 12. `decrypt` throws when the tag is wrong. */
export function chacha20poly1305(key: Uint8Array, nonce: Uint8Array, aad?: Uint8Array): {
  encrypt(plaintext: Uint8Array): Uint8Array<ArrayBuffer>;
  decrypt(ciphertext: Uint8Array): Uint8Array<ArrayBuffer>;
};
