// A third-party authorization server (panva oidc-provider) at the paths of the portal.
// env: PORT, TLS_KEY + TLS_CERT, CLIENT_ID, INTERVAL, MIN_GAP, DEVICE_TTL, ACCESS_TTL
import fs from 'node:fs';
import http from 'node:http';
import https from 'node:https';
import Provider, { errors } from 'oidc-provider';

const DEVICE_GRANT = 'urn:ietf:params:oauth:grant-type:device_code';
const API = 'urn:test:api';
const env = (name, fallback) => Number(process.env[name] ?? fallback);
const MIN_GAP = env('MIN_GAP', 0); // seconds; above 0 a hasty poll is answered slow_down
const INTERVAL = process.env.INTERVAL === undefined ? undefined : Number(process.env.INTERVAL);
const tls = process.env.TLS_KEY && process.env.TLS_CERT;

const server = tls
  ? https.createServer({ key: fs.readFileSync(process.env.TLS_KEY), cert: fs.readFileSync(process.env.TLS_CERT) })
  : http.createServer();

server.listen(env('PORT', 0), '127.0.0.1', () => {
  const issuer = `${tls ? 'https' : 'http'}://localhost:${server.address().port}`;
  const provider = new Provider(issuer, {
    routes: { device_authorization: '/api/oauth/device/code', token: '/api/oauth/token', revocation: '/api/oauth/revoke' },
    clients: [{
      client_id: process.env.CLIENT_ID ?? 'hermes-cli',
      client_name: 'Sign-in test',
      application_type: 'native',
      token_endpoint_auth_method: 'none',
      grant_types: [DEVICE_GRANT, 'refresh_token'],
      response_types: [],
      redirect_uris: [],
    }],
    scopes: ['openid', 'email', 'offline_access'],
    claims: { openid: ['sub'], email: ['email', 'email_verified'] },
    cookies: { keys: ['test-only'] },
    findAccount: (_ctx, id) => ({
      accountId: id,
      claims: () => ({ sub: id, email: `${id}@example.test`, email_verified: true }),
    }),
    ttl: {
      DeviceCode: env('DEVICE_TTL', 600), AccessToken: env('ACCESS_TTL', 3600), IdToken: 3600, RefreshToken: 86400,
      Grant: 86400, Session: 86400, Interaction: 3600,
    },
    issueRefreshToken: async (_ctx, client) => client.grantTypeAllowed('refresh_token'),
    rotateRefreshToken: true, // single use: a replay ends the whole grant
    extraTokenClaims: async (_ctx, token) => ({ email: `${token.accountId}@example.test` }),
    features: {
      devInteractions: { enabled: true }, // the server's own login and consent pages
      deviceFlow: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => API,
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({
          scope: 'inference:invoke', audience: API, accessTokenFormat: 'jwt', accessTokenTTL: env('ACCESS_TTL', 3600),
          jwt: { sign: { alg: 'RS256' } },
        }),
      },
    },
  });

  // oidc-provider sends neither slow_down nor `interval`: both are added in front of it.
  const lastPoll = new Map();
  provider.use(async (ctx, next) => {
    await next();
    if (INTERVAL !== undefined && ctx.oidc?.route === 'device_authorization' && ctx.body?.device_code) {
      ctx.body = { ...ctx.body, interval: INTERVAL };
    }
    if (MIN_GAP && ctx.oidc?.route === 'token' && ctx.body?.error === 'authorization_pending') {
      const code = ctx.oidc.params.device_code;
      const now = Date.now();
      const previous = lastPoll.get(code);
      lastPoll.set(code, now);
      if (previous !== undefined && now - previous < MIN_GAP * 1000 - 50) {
        const { error, error_description } = new errors.SlowDown();
        ctx.status = 400;
        ctx.body = { error, error_description };
      }
    }
  });
  server.on('request', provider.callback());
  console.log(JSON.stringify({ ready: true, issuer }));
});
