// An OpenID provider on loopback. Prints its URL.
// PUT /control/keys?alg=ES256 makes it sign with a new key. The previous key stays published, older ones do not.
import { generateKeyPairSync, randomUUID } from 'node:crypto';
import { createServer } from 'node:http';

import Provider from 'oidc-provider';

const KEYS = {
  RS256: () => generateKeyPairSync('rsa', { modulusLength: 2048 }),
  ES256: () => generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  EdDSA: () => generateKeyPairSync('ed25519'),
};
const SCOPES = 'retrieve:read chat:write jobs:read';

const server = createServer((request, response) => answer(request, response));
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const issuer = `http://127.0.0.1:${server.address().port}`;
const keys = [];
let handle;

function makeProvider(algorithm) {
  const client = { client_secret: 'secret', grant_types: ['client_credentials'], redirect_uris: [], response_types: [] };
  return new Provider(issuer, {
    cookies: { keys: ['unused'] },
    clients: [{ ...client, client_id: 'ferry', tenant: 'acme-corp' }, { ...client, client_id: 'adrift' }],
    extraClientMetadata: { properties: ['tenant'] },
    extraTokenClaims: (_context, token) => ({ tenant_id: token.client.tenant, groups: ['staff'] }),
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_context, resource) => ({
          scope: SCOPES,
          audience: resource,
          accessTokenFormat: 'jwt',
          accessTokenTTL: 300,
          jwt: { sign: { alg: algorithm } },
        }),
      },
    },
    enabledJWA: { idTokenSigningAlgValues: [algorithm] },
    clientDefaults: { id_token_signed_response_alg: algorithm },
    jwks: { keys },
    scopes: SCOPES.split(' '),
  });
}

function signWithNewKey(algorithm) {
  const key = { ...KEYS[algorithm]().privateKey.export({ format: 'jwk' }), kid: randomUUID(), alg: algorithm, use: 'sig' };
  keys.unshift(key);
  keys.splice(2);
  handle = makeProvider(algorithm).callback();
  return key.kid;
}

function answer(request, response) {
  const url = new URL(request.url, issuer);
  if (url.pathname === '/control/keys') {
    response.end(signWithNewKey(url.searchParams.get('alg')));
  } else {
    handle(request, response);
  }
}

signWithNewKey('RS256');
console.log(issuer);
