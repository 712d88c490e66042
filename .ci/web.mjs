// Tests of the pages in a real browser. Each test is a function below; `.ci/web` starts this.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const { BIN_DIR, MODULES, PICTURES } = process.env;
const load = createRequire(join(MODULES, 'package.json'));
const { chromium } = load('playwright-core');
const AXE = readFileSync(load.resolve('axe-core/axe.min.js'), 'utf8');
// A tab separates attributes as well as a space, which would make it a title of several words.
const EVIL = '<img\tsrc=x\tonerror=window.pwned=1>';
const TIME_LIMIT = 20_000;
const OURS = ['evil', 'victim', 'guest', 'herd', 'gemini'];

const scratch = mkdtempSync(join(tmpdir(), 'watchdog-web-'));
// Another user starts a program in it.
chmodSync(scratch, 0o755);
const socket = join(scratch, 'run', 'control.sock');
const bin = (name) => join(BIN_DIR, name);
const started = [];
// Undo what a test changed, the last change first.
const cleanups = [];

async function eventually(what, attempt, within = TIME_LIMIT) {
  const end = Date.now() + within;
  let last;
  while (Date.now() < end) {
    try {
      last = await attempt();
      if (last) return last;
    } catch (error) { last = error; }
    await sleep(50);
  }
  throw new Error(`${what}: not within ${within} ms; last: ${last && last.stack || last}`);
}

// Programs on the stage. A script's words are those of the fixture of the end-to-end tests.
function install(name) {
  const path = join(scratch, name);
  // A program that runs cannot be written to.
  if (!existsSync(path)) copyFileSync(bin('fixture'), path);
  return path;
}
function start(program, args, options = {}) {
  const child = spawn(program, args, { stdio: 'ignore', ...options });
  started.push(child);
  return child;
}
const stage = (name, script, argv0) =>
  start(install(name), [], { argv0: argv0 || name, env: { ...process.env, FIXTURE_DIR: scratch, FIXTURE_SCRIPT: script }, cwd: scratch });

let daemon;
async function daemonIn(directory) {
  const child = start(bin('watchdogd'), ['--config', join(directory, 'config.toml'), '--runtime-dir', join(directory, 'run'),
    '--state-dir', join(directory, 'state'), '--listen', 'off'], { stdio: ['ignore', 'ignore', 'pipe'] });
  let log = '';
  child.stderr.on('data', (text) => { log += text; });
  await eventually('the daemon is ready', () => log.includes('ready: control socket'), 40_000);
  return child;
}
async function startDaemon() { daemon = await daemonIn(scratch); }
const hasExited = (child) => child.exitCode != null || child.signalCode != null;
async function stop(child) {
  if (hasExited(child)) return;
  const ended = new Promise((done) => child.once('exit', done));
  child.kill('SIGTERM');
  await Promise.race([ended, sleep(5_000).then(() => child.kill('SIGKILL'))]);
}
const ctl = (...args) => JSON.parse(spawnSync(bin('watchdogctl'), ['--socket', socket, '--json', ...args], { maxBuffer: 1 << 28 }).stdout);
// A session that has ended may have a process that somebody keeps.
const listed = () => ctl('tree').sessions;
const sessions = () => listed().filter((session) => session.state !== 'ended');
// Other agents may run on this host. Those of the configuration have a path of their own.
const isOurs = (one) => OURS.includes(one.profile) || one.processes.some(({ pid }) => started.some((child) => child.pid === pid));
function killAll(sessions) {
  for (const { pid } of sessions.flatMap((one) => one.processes)) try { process.kill(pid, 'SIGKILL'); } catch { /* it has exited */ }
}
const sessionOf = (profile, state = 'running') =>
  eventually(`a session of ${profile}`, () => sessions().find((one) => one.profile === profile && one.state === state && isOurs(one)));

async function startWeb(args, options, control = socket) {
  const child = start(join(scratch, 'watchdogctl'), ['--socket', control, 'web', ...args], { stdio: ['ignore', 'pipe', 'ignore'], ...options });
  let out = '';
  child.stdout.on('data', (text) => { out += text; });
  const line = await eventually('the address', () => out.includes('\n') && out.split('\n')[0]);
  assert.match(line, /^http:\/\/127\.0\.0\.1:\d+\/\?token=[0-9a-f]{64}$/);
  return { child, url: new URL(line) };
}

const hasSwap = () => readFileSync('/proc/swaps', 'utf8').trim().includes('\n');
// Swap on a file until the test ends, or `false`. A shell removes it, also if this program is killed. The lock is that of the
// Rust tests: swap belongs to the whole host.
async function addSwap() {
  const script = 'flock 9; { dd if=/dev/zero of="$1" bs=1M count=256 status=none && chmod 600 "$1" && mkswap -q "$1" && swapon "$1"; } >&2 && echo ready || echo refused; cat >/dev/null; swapoff "$1"; rm -f "$1"';
  const child = spawn('bash', ['-c', `exec 9>>"$2"; ${script}`, 'bash', join(tmpdir(), `watchdog-web-swap-${process.pid}`), join(tmpdir(), 'watchdog-test-swap.lock')], { stdio: ['pipe', 'pipe', 'ignore'], detached: true });
  const ended = new Promise((done) => child.once('exit', done));
  cleanups.push(() => { child.stdin.end(); return ended; });
  let answer = '';
  child.stdout.on('data', (text) => { answer += text; });
  return await eventually('an answer of swapon', () => answer.trim(), 60_000) === 'ready';
}
const freePort = () => new Promise((done) => {
  const server = http.createServer().listen(0, '127.0.0.1', () => { const { port } = server.address(); server.close(() => done(port)); });
});

// A store with two hosts on this machine, and the page of the first one.
async function startFleet() {
  const [port, hosts] = [await freePort(), new Map()];
  const store = start('redis-server', ['--port', String(port), '--bind', '127.0.0.1', '--dir', scratch, '--save', '', '--maxmemory-policy', 'noeviction']);
  const directory = (host) => join(scratch, host);
  for (const host of ['build-a', 'build-b']) {
    mkdirSync(join(directory(host), 'run'), { recursive: true });
    cleanups.push(() => spawnSync(bin('watchdogd'), ['--runtime-dir', join(directory(host), 'run'), '--unpin']));
    writeFileSync(join(directory(host), 'config.toml'), `[gate]\nreserve = "16MiB"\n[fleet]\nstore = "redis://127.0.0.1:${port}"\nhost = "${host}"\nttl = "3s"\nmax_sessions = 9\nlabels = ["eu"]\n`);
    hosts.set(host, await daemonIn(directory(host)));
  }
  const control = (host) => join(directory(host), 'run', 'control.sock');
  const web = await startWeb([], {}, control('build-a'));
  const launch = (host) => start(join(scratch, 'watchdogctl'), ['--socket', control(host), 'launch', '--memory', '8MiB', '--', 'sleep', '300']);
  return { store, hosts, web, launch };
}

// A request without a browser: status, headers and body.
function ask(url, { method = 'GET', headers = {}, body } = {}) {
  return new Promise((done, failed) => {
    const request = http.request({ host: '127.0.0.1', port: url.port, path: url.pathname + url.search, method, headers, agent: false }, (answer) => {
      let text = '';
      answer.on('data', (piece) => { text += piece; });
      answer.on('end', () => done({ status: answer.statusCode, headers: answer.headers, text }));
    });
    request.on('error', failed);
    request.end(body);
  });
}
async function admitted(web) {
  const { headers } = await ask(web.url);
  return { cookie: headers['set-cookie'][0].split(';')[0], base: new URL(headers.location, web.url) };
}

let browser, reader, actor;
const problems = [];
async function open(web, { page = 'overview', options = {}, context } = {}) {
  context ||= await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const tab = await context.newPage();
  tab.on('pageerror', (error) => problems.push(`${page}: ${error.stack}`));
  tab.on('console', (message) => { if (message.type() === 'error' && !/Failed to load resource|ERR_/.test(message.text())) problems.push(`${page}: ${message.text()}`); });
  await tab.goto(`${web.url}#${page}`);
  await tab.waitForFunction(() => document.querySelector('#blocks').children.length > 0);
  return tab;
}
const text = (tab) => tab.locator('main').innerText();
const shows = (tab, what, within) => eventually(`the page shows ${what}`, async () => (await text(tab)).includes(what), within);
async function go(tab, page) {
  await tab.evaluate((page) => { location.hash = page; }, page);
  await eventually(`the page is ${page}`, () => tab.evaluate((page) => !busy && window.location.hash.slice(1).startsWith(page), page));
}
async function isAccessible(tab, what) {
  await tab.evaluate(AXE);
  const { violations } = await tab.evaluate(() => axe.run(document, { resultTypes: ['violations'] }));
  assert.deepEqual(violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 120)).join(' | ')}`), [], what);
}

// No heading stands twice, and no column is empty.
async function isTidy(tab, what) {
  const found = await tab.evaluate(() => {
    const headings = [...document.querySelectorAll('main h1, main h2')].map((one) => one.textContent);
    const empty = [...document.querySelectorAll('main table')].flatMap((table) => [...table.querySelectorAll('th')]
      .filter((_, i) => [...table.tBodies[0].rows].every((row) => !row.cells[i].textContent.trim())).map((th) => th.textContent));
    return { twice: headings.filter((text, i) => headings.indexOf(text) !== i), empty };
  });
  assert.deepEqual(found, { twice: [], empty: [] }, what);
}

const PAGES = ['overview', 'session', 'findings', 'history', 'actions', 'plan', 'config'];
const TESTS = {
  async token_becomes_a_cookie() {
    const answer = await ask(reader.url);
    assert.equal(answer.status, 303);
    const cookie = answer.headers['set-cookie'][0];
    assert.match(cookie, /HttpOnly; SameSite=Strict/);
    assert.ok(!answer.headers.location.includes(reader.url.searchParams.get('token')));
    assert.match(cookie, new RegExp(`Path=${answer.headers.location};`));
    const tab = await open(reader);
    assert.ok(!tab.url().includes('token'));
    assert.equal(await tab.evaluate(() => document.cookie), '');
  },
  async every_answer_is_confined() {
    const { cookie, base } = await admitted(reader);
    for (const name of ['', 'page.js', 'uPlot.js', 'view/overview', 'view/none', 'nothing', '../../etc/passwd', '..%2f..%2fetc%2fpasswd']) {
      const { headers, status, text } = await ask(Object.assign(new URL(base), { search: '' }), { headers: { cookie } }).then(async () =>
        ask({ port: base.port, pathname: base.pathname + name, search: '' }, { headers: { cookie } }));
      assert.match(headers['content-security-policy'], /^default-src 'self'; frame-ancestors 'none'/, name);
      assert.equal(headers['x-content-type-options'], 'nosniff');
      assert.equal(headers['referrer-policy'], 'no-referrer');
      assert.equal(headers['access-control-allow-origin'], undefined);
      assert.equal(status, /none|nothing|etc/.test(name) ? 404 : 200, name);
      assert.ok(!text.includes('root:'), name);
    }
  },
  async stale_token_is_refused() {
    const wrong = new URL(reader.url);
    wrong.searchParams.set('token', '0'.repeat(64));
    assert.equal((await ask(wrong)).status, 403);
    const { base } = await admitted(reader);
    assert.equal((await ask(base)).status, 401);
    assert.equal((await ask(new URL('/', base))).status, 401);
    assert.equal((await ask(base, { headers: { cookie: `agent_watchdog=${'0'.repeat(64)}` } })).status, 401);
    const { cookie } = await admitted(actor);
    assert.equal((await ask(base, { headers: { cookie } })).status, 401);
  },
  async forged_host_is_refused() {
    const { cookie, base } = await admitted(reader);
    for (const host of ['evil.example', `evil.example:${base.port}`, '127.0.0.1:1', 'localhost', `localhost.evil.example:${base.port}`]) {
      assert.equal((await ask(base, { headers: { cookie, host } })).status, 403, host);
      assert.equal((await ask(reader.url, { headers: { host } })).headers['set-cookie'], undefined, host);
    }
    assert.equal((await ask(base, { headers: { cookie, host: `localhost:${base.port}` } })).status, 200);
  },
  async foreign_origin_neither_reads_nor_acts() {
    const { cookie, base } = await admitted(actor);
    const session = (await sessionOf('claude-code')).id;
    const act = { ...base, port: base.port, pathname: `${base.pathname}act`, search: '' };
    const body = JSON.stringify({ action: 'end', session });
    const post = (headers, text = body) => ask(act, { method: 'POST', body: text, headers: { cookie, 'content-type': 'application/json', ...headers } });
    assert.equal((await post({ origin: base.origin })).status, 200);
    for (const origin of ['http://evil.example', 'null', `http://localhost:${base.port}`, 'http://127.0.0.1:1']) {
      assert.equal((await post({ origin })).status, 403, origin);
    }
    assert.equal((await post({})).status, 403);
    assert.equal((await post({ origin: base.origin, 'content-type': 'text/plain' })).status, 415);
    assert.equal((await post({ origin: base.origin }, '{"action":"end","session":1,"expected":[]}')).status, 400);
    // A page of another server on loopback, with the cookie in the browser's jar.
    const seen = [];
    const evil = http.createServer((request, answer) => {
      seen.push(request.headers.cookie || '');
      answer.setHeader('content-type', 'text/html');
      answer.end('<title>evil</title>');
    }).listen(0, '127.0.0.1');
    cleanups.push(() => { evil.closeAllConnections(); evil.close(); });
    await new Promise((done) => evil.once('listening', done));
    const tab = await open(actor);
    const other = await tab.context().newPage();
    await other.goto(`http://127.0.0.1:${evil.address().port}/`);
    const stolen = await other.evaluate(async ([address, body]) => {
      const tries = [fetch(`${address}view/overview`, { credentials: 'include' }), fetch(`${address}act`, { method: 'POST', credentials: 'include', body, headers: { 'content-type': 'application/json' } })];
      return (await Promise.allSettled(tries)).map((one) => one.status);
    }, [base.href, body]);
    assert.deepEqual(stolen, ['rejected', 'rejected']);
    assert.ok(seen.every((cookie) => cookie === ''), 'the cookie was sent to another port');
    assert.equal((await sessionOf('claude-code')).id, session);
  },
  async read_only_page_does_not_act() {
    const { cookie, base } = await admitted(reader);
    const answer = await ask({ port: base.port, pathname: `${base.pathname}act`, search: '' },
      { method: 'POST', body: '{}', headers: { cookie, origin: base.origin, 'content-type': 'application/json' } });
    assert.equal(answer.status, 403);
    assert.match(answer.text, /--act/);
    const tab = await open(reader);
    assert.equal(await tab.locator('main button').count(), 0);
  },
  async every_page_shows_real_data() {
    const session = await sessionOf('claude-code');
    const tab = await open(reader);
    const expected = {
      overview: ['Host memory', 'claude-code', 'running', 'Launch queue', 'everything else'],
      session: [`Session ${session.id}: claude-code`, 'server-memory', 'mcp-server', 'Memory over time'],
      findings: ['orphan', 'killed by SIGKILL', 'proposed action'],
      history: ['What happened within five minutes', 'Who held memory', 'session started'],
      actions: ['Actions'],
      plan: ['Agents that fit', 'Settings of this host'],
      config: ['[orphans]', 'grace', '"2s"', 'set', 'default'],
    };
    for (const page of PAGES) {
      await go(tab, page === 'session' ? `session?id=${session.id}` : page);
      for (const what of expected[page]) await shows(tab, what);
      await isTidy(tab, page);
      await isAccessible(tab, page);
    }
  },
  async pages_fit_every_width() {
    const session = await sessionOf('claude-code');
    for (const [width, colorScheme] of [[360, 'dark'], [768, 'light'], [1440, 'dark']]) {
      const tab = await open(actor, { options: { viewport: { width, height: 800 }, colorScheme } });
      for (const page of PAGES) {
        await go(tab, page === 'session' ? `session?id=${session.id}` : page);
        await sleep(300);
        // Neither the page nor a table of it needs to be scrolled sideways.
        const wide = await tab.evaluate(() => [document.documentElement, ...document.querySelectorAll('nav, .scroll')]
          .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.getAttribute('aria-label') || one.localName));
        assert.deepEqual(wide, [], `${page} at ${width}`);
        await isAccessible(tab, `${page}, ${colorScheme}, ${width}`);
      }
      await tab.context().close();
    }
  },
  async names_of_processes_are_text() {
    const evil = await sessionOf('evil');
    const tab = await open(actor);
    await shows(tab, 'evil');
    await go(tab, `session?id=${evil.id}`);
    await shows(tab, EVIL.replaceAll('\t', '\\u{9}'));
    await shows(tab, '<img~onerror=1>'.replace('~', ' '));
    await shows(tab, '\\u{202e}');
    await tab.getByRole('button', { name: /^End/ }).first().click();
    await eventually('the preview', async () => (await tab.locator('#step').innerText()).includes('a\\u{202e}b'));
    await tab.keyboard.press('Escape');
    assert.equal(await tab.locator('main img, dialog img').count(), 0);
    assert.equal(await tab.evaluate(() => window.pwned), undefined);
  },
  async action_has_preview_and_receipt() {
    const victim = stage('victim', 'spawn helper [ anon 8 hold ] anon 4 hold');
    const { id } = await sessionOf('victim');
    await eventually('the helper', () => sessions().find((one) => one.id === id).processes.length === 2);
    const tab = await open(actor, { page: `session?id=${id}` });
    const end = tab.getByRole('button', { name: /^End/ });
    await end.focus();
    await tab.keyboard.press('Enter');
    await eventually('the preview', async () => (await tab.locator('#dialog').innerText()).includes('2 processes'));
    await isAccessible(tab, 'dialog');
    assert.match(await tab.locator('#dialog').innerText(), /agent, alive/);
    await tab.getByRole('button', { name: 'Cancel' }).click();
    assert.equal(sessions().find((one) => one.id === id).processes.length, 2, 'nothing was done');
    await end.click();
    await tab.getByRole('button', { name: 'Confirm' }).click();
    await eventually('the receipt', async () => /Receipt[\s\S]*TERM[\s\S]*exited/.test(await tab.locator('#dialog').innerText()));
    await eventually('the victim is gone', () => victim.signalCode === 'SIGTERM');
    await tab.getByRole('button', { name: 'Close' }).click();
    await go(tab, 'actions');
    await shows(tab, 'done');
  },
  async idle_session_is_paged_out() {
    const server = stage('victim', 'anon 64 hold');
    const { id } = await sessionOf('victim');
    const status = () => readFileSync(`/proc/${server.pid}/status`, 'utf8');
    const kib = (name) => Number(status().match(new RegExp(`${name}:\\s+(\\d+)`))[1]);
    await eventually('its memory', () => kib('RssAnon') > 64_000);
    const tab = await open(actor, { page: `session?id=${id}` });
    for (const label of ['Resident', '0 swapped']) await shows(tab, label);
    const button = tab.getByRole('button', { name: /^Reclaim/ });
    const dialog = tab.locator('#dialog');
    if (!hasSwap()) {
      await button.click();
      await eventually('why not', async () => (await dialog.innerText()).includes('without swap, only pages of files can be dropped'));
      await isAccessible(tab, 'preview without swap');
      await tab.keyboard.press('Escape');
    }
    if (!await addSwap()) return console.log('  no swap can be used here: only the preview was tested');
    // The daemon looks at swap from time to time.
    await eventually('the preview', async () => {
      await button.focus();
      await tab.keyboard.press('Enter');
      await eventually('an answer', () => dialog.isVisible());
      if (/would page out up to \d+ MiB of session \d+\n/.test(await dialog.innerText())) return true;
      await tab.keyboard.press('Escape');
      await sleep(500);
    }, 60_000);
    await isAccessible(tab, 'preview of a page-out');
    assert.equal(kib('VmSwap'), 0, 'a preview changes nothing');
    await tab.getByRole('button', { name: 'Confirm' }).click();
    await eventually('the receipt', async () => /Receipt[\s\S]*paged out .* of session \d+ in[\s\S]*resident: .* before, .* now/.test(await dialog.innerText()));
    assert.ok(kib('VmSwap') > 32_000, status());
    await tab.keyboard.press('Escape');
    await eventually('the swapped memory', async () => /[3-9]\d MiB swapped/.test(await text(tab)));
    await go(tab, 'overview');
    const row = tab.getByRole('region', { name: 'Sessions' }).locator('tr', { hasText: 'victim' });
    await eventually('it in the overview', async () => /[3-9]\d MiB/.test(await row.locator('td').nth(5).innerText()));
    for (const what of [', swap ', 'Resident', 'Swapped', 'Idle since']) await shows(tab, what);
    await isAccessible(tab, 'overview with swap');
  },
  async fleet_page_follows_its_hosts() {
    const plain = await open(reader);
    await plain.waitForFunction(() => position);
    assert.ok(!await plain.getByRole('link', { name: 'Fleet' }).isVisible(), 'this host belongs to no fleet');
    const { store, hosts, web, launch } = await startFleet();
    const tab = await open(web);
    const link = tab.getByRole('link', { name: 'Fleet' });
    await link.waitFor();
    await link.focus();
    await tab.keyboard.press('Enter');
    for (const what of ['Fleet', 'build-a (this host)', 'build-b', 'redis://127.0.0.1', '0 unreachable', 'eu']) await shows(tab, what);
    assert.equal(await link.getAttribute('aria-current') != null, true);
    await isAccessible(tab, 'fleet');
    launch('build-a');
    const pools = tab.getByRole('region', { name: 'Pools' });
    await eventually('the place that is held', async () => /all\s+1\s+9\s+build-a 1/.test(await pools.innerText()));
    await stop(hosts.get('build-b'));
    await shows(tab, '1 unreachable');
    const row = tab.getByRole('region', { name: 'Hosts' }).locator('tr', { hasText: 'build-b' });
    assert.match(await row.innerText(), /unreachable\s+\d+(\.\d+)? ?s ago/);
    store.kill('SIGKILL');
    await shows(tab, 'store: lost');
    await tab.setViewportSize({ width: 375, height: 800 });
    await tab.emulateMedia({ colorScheme: 'dark' });
    await sleep(300);
    assert.ok(await tab.evaluate(() => document.documentElement.scrollWidth <= innerWidth), 'it fits a phone');
    await isAccessible(tab, 'fleet, dark, narrow');
  },
  async orphans_are_kept_and_reaped() {
    const agent = stage('victim', 'spawn helper [ anon 6 hold ] spawn helper [ anon 7 hold ] hold');
    const { id } = await sessionOf('victim');
    await eventually('the helpers', () => sessions().find((one) => one.id === id).processes.length === 3);
    const tab = await open(actor, { page: `session?id=${id}` });
    agent.kill('SIGKILL');
    await shows(tab, 'orphaned');
    await tab.getByRole('button', { name: /^Keep helper/ }).first().click();
    await tab.getByRole('button', { name: 'Confirm' }).click();
    await eventually('it is kept', async () => (await tab.locator('#dialog').innerText()).includes('1 process was set'));
    await tab.getByRole('button', { name: 'Close' }).click();
    await tab.getByRole('button', { name: /^Reap this session/ }).click();
    await tab.getByRole('button', { name: 'Confirm' }).click();
    await eventually('the receipt', async () => /Receipt[\s\S]*exited/.test(await tab.locator('#dialog').innerText()));
    const left = ctl('tree', String(id)).sessions[0].processes;
    const kept = left.filter((process) => process.state !== 'zombie');
    assert.deepEqual(kept.map((process) => process.state), ['kept']);
  },
  async confirmed_targets_only_are_terminated() {
    const victim = stage('victim', 'anon 3 await later spawn helper [ anon 5 hold ] hold');
    const { id } = await sessionOf('victim');
    const { cookie, base } = await admitted(actor);
    const post = async (call) => JSON.parse((await ask({ port: base.port, pathname: `${base.pathname}act`, search: '' }, {
      method: 'POST', body: JSON.stringify(call), headers: { cookie, origin: base.origin, 'content-type': 'application/json' } })).text);
    const step = await post({ action: 'end', session: id });
    assert.equal(step.confirm.expect.length, 1);
    assert.equal(victim.exitCode ?? victim.signalCode, null, 'a preview changes nothing');
    writeFileSync(join(scratch, 'later'), '');
    await eventually('a later helper', () => sessions().find((one) => one.id === id).processes.length === 2);
    await post(step.confirm);
    await eventually('the victim is gone', () => victim.signalCode);
    const left = await sessionOf('victim', 'orphaned');
    assert.equal(left.processes.length, 1, 'the later helper was not shown, and so not terminated');
  },
  async other_user_sees_and_ends_nothing() {
    const web = await startWeb(['--act'], { uid: 65534, gid: 65534 });
    const tab = await open(web);
    await shows(tab, 'Launch queue');
    const { id } = await sessionOf('claude-code');
    assert.equal(await tab.locator(`a[href="#session?id=${id}"]`).count(), 0);
    await tab.evaluate((session) => act({ action: 'end', session }), id);
    await eventually('a refusal', async () => (await tab.locator('#dialog').innerText()).includes('another user'));
    await go(tab, `session?id=${id}`);
    await eventually('no session', async () => /no (session|record)/.test(await tab.locator('#alert').innerText()));
    assert.equal((await sessionOf('claude-code')).id, id);
  },
  async two_tabs_follow_at_once() {
    const one = await open(reader);
    const two = await open(reader, { context: one.context(), page: 'overview' });
    const child = stage('guest', 'anon 2 hold');
    for (const tab of [one, two]) await shows(tab, 'guest', 5_000);
    child.kill('SIGKILL');
    const rows = (tab) => tab.getByRole('region', { name: 'Sessions' }).getByText('guest').count();
    for (const tab of [one, two]) await eventually('it is gone', async () => await rows(tab) === 0, 10_000);
  },
  async hidden_page_closes_its_stream() {
    const tab = await open(reader);
    const streams = () => tab.evaluate(() => stream && stream.readyState);
    await eventually('the stream is open', async () => await streams() === 1);
    const hide = (hidden) => tab.evaluate((hidden) => {
      Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
      document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
    await hide(true);
    assert.equal(await streams(), null);
    await hide(false);
    await eventually('the stream is open again', async () => await streams() === 1);
  },
  async stream_resumes_after_its_last_event() {
    const { cookie, base } = await admitted(reader);
    const listen = (headers) => new Promise((done, failed) => {
      let got = '';
      const request = http.get({ host: '127.0.0.1', port: base.port, path: `${base.pathname}live`, headers: { cookie, ...headers }, agent: false }, (answer) => {
        answer.on('data', (piece) => {
          got += piece;
          const last = got.match(/id: (\S+)\nevent: change\ndata: (.*)\n/);
          if (last) { request.destroy(); done({ id: last[1], data: JSON.parse(last[2]) }); }
        });
      });
      request.on('error', (error) => { if (!request.destroyed) failed(error); });
      setTimeout(() => { request.destroy(); failed(new Error(`no change in ${got}`)); }, 8_000).unref();
    });
    const first = listen({});
    await sleep(300);
    stage('victim', 'sleep 0.2');
    const { id } = await first;
    await sleep(600);
    const [run, seq] = [id.slice(0, id.lastIndexOf('/')), Number(id.slice(id.lastIndexOf('/') + 1))];
    const again = await listen({ 'last-event-id': `${run}/${seq - 1}` });
    assert.ok(again.data.events >= 1 && again.id.startsWith(run));
  },
  async daemon_may_restart() {
    const tab = await open(reader);
    const { id } = await sessionOf('claude-code');
    await stop(daemon);
    const alert = tab.locator('#alert');
    await eventually('the page says so', async () => (await alert.innerText()).includes('cannot reach the daemon'), 10_000);
    assert.ok((await text(tab)).includes('claude-code'), 'the last view stays');
    await startDaemon();
    await eventually('the page recovers', async () => !await alert.isVisible(), 10_000);
    assert.equal((await sessionOf('claude-code')).id, id);
    stage('victim', 'anon 2 hold');
    await shows(tab, 'victim', 5_000);
  },
  async slow_clients_do_not_block_the_page() {
    const net = await import('node:net');
    const slow = Array.from({ length: 200 }, () => {
      const one = net.connect(Number(reader.url.port), '127.0.0.1', () => one.write('GET / HTTP/1.1\r\nhost: '));
      one.on('error', () => {});
      return one;
    });
    const drip = setInterval(() => slow.forEach((one) => one.writable && one.write('x')), 200);
    cleanups.push(() => { clearInterval(drip); slow.forEach((one) => one.destroy()); });
    await sleep(500);
    const began = Date.now();
    const { cookie, base } = await admitted(reader);
    assert.equal((await ask(base, { headers: { cookie } })).status, 200);
    assert.ok(Date.now() - began < 2_000, `${Date.now() - began} ms`);
    await eventually('slow clients are disconnected', () => slow.every((one) => one.destroyed || one.readableEnded || one.closed), 12_000);
  },
  async two_thousand_processes_are_usable() {
    stage('herd', 'times 2000 [ fork [ hold ] ] hold');
    const session = await eventually('the herd', () => sessions().find((one) => one.profile === 'herd' && one.processes.length > 2000), 40_000);
    const tab = await open(reader, { page: `session?id=${session.id}` });
    await eventually('every process', async () => await tab.locator('tbody tr').count() > 2000);
    const [cost, drawn] = await eventually('a refresh', () => tab.evaluate(() => spent && [spent, drawn]), 10_000);
    assert.ok(drawn < 1_000, `${drawn} ms to draw`);
    const { cookie, base } = await admitted(reader);
    const time = async (what) => { const began = performance.now(); await what(); return Math.round(performance.now() - began); };
    const view = (name) => ask({ port: base.port, pathname: `${base.pathname}view/${name}`, search: '' }, { headers: { cookie } });
    const tree = () => new Promise((done) => http.get({ socketPath: socket, path: '/v1/tree', agent: false }, (answer) => answer.resume().on('end', done)));
    console.log(`  the daemon's tree: ${await time(tree)} ms; the view of the session: ${await time(() => view(`session?id=${session.id}`))} ms; the overview: ${await time(() => view('overview'))} ms`);
    await go(tab, 'overview');
    await shows(tab, '2001');
    console.log(`  2,001 processes: a refresh takes ${Math.round(cost)} ms, ${Math.round(drawn)} of them to draw`);
  },
  async scripts_ran_without_errors() {
    assert.deepEqual(problems, []);
  },
};

// Returns a function that restores the present state: no tab, no process and no session that came later, and a daemon.
function checkpoint() {
  const [ours, first] = [new Set(sessions().filter(isOurs).map((one) => one.id)), started.length];
  return async () => {
    for (const context of browser.contexts()) await context.close();
    if (hasExited(daemon)) await startDaemon();
    const added = () => sessions().filter((one) => isOurs(one) && !ours.has(one.id));
    killAll(listed().filter((one) => isOurs(one) && !ours.has(one.id)));
    const mine = started.splice(first);
    if (mine.includes(daemon)) started.push(daemon);
    for (const child of mine.filter((child) => child !== daemon).reverse()) await stop(child);
    while (cleanups.length) await cleanups.pop()();
    await eventually('sessions of the test are gone', () => { killAll(added()); return !added().length; }, 40_000);
  };
}

// What a page costs the daemon, in milliseconds of CPU a second. For people; nothing is asserted.
async function measure() {
  const spent = () => {
    const [user, system] = readFileSync(`/proc/${daemon.pid}/stat`, 'utf8').split(') ')[1].split(' ').slice(11, 13).map(Number);
    return (user + system) * 10;
  };
  const rate = async (what) => {
    const before = spent();
    await sleep(20_000);
    console.log(`${what}: ${((spent() - before) / 20).toFixed(1)} ms/s`);
  };
  await rate('no page');
  for (const page of ['overview', `session?id=${(await sessionOf('claude-code')).id}`]) {
    const tab = await open(reader, { page });
    await rate(page);
    await tab.context().close();
  }
  return 0;
}

async function takePictures() {
  const session = await sessionOf('claude-code');
  stage('victim', `spawn helper [ anon 64 hold ] anon 32 hold`);
  const victim = await sessionOf('victim');
  await sleep(1_000);
  spawnSync(bin('watchdogctl'), ['--socket', socket, 'end', String(victim.id), '--yes']);
  for (const scheme of ['light', 'dark']) {
    const tab = await open(actor, { options: { colorScheme: scheme, viewport: { width: 1200, height: 820 } } });
    for (const page of PAGES) {
      await go(tab, page === 'session' ? `session?id=${session.id}` : page);
      await sleep(900);
      await tab.screenshot({ path: join(PICTURES, `web-${page}-${scheme}.png`) });
    }
    await go(tab, `session?id=${session.id}`);
    await tab.getByRole('button', { name: 'End this session' }).click();
    await eventually('the preview', () => tab.locator('#dialog').isVisible());
    await tab.screenshot({ path: join(PICTURES, `web-action-${scheme}.png`) });
    await tab.context().close();
  }
  const { hosts, web, launch } = await startFleet();
  for (const host of ['build-a', 'build-a', 'build-b']) launch(host);
  await sleep(3_000);
  await stop(hosts.get('build-b'));
  for (const scheme of ['light', 'dark']) {
    const tab = await open(web, { page: 'fleet', options: { colorScheme: scheme, viewport: { width: 1200, height: 820 } } });
    await shows(tab, '1 unreachable');
    await tab.screenshot({ path: join(PICTURES, `web-fleet-${scheme}.png`) });
    await tab.context().close();
  }
  const phone = await open(actor, { options: { viewport: { width: 390, height: 844 } } });
  await sleep(900);
  await phone.screenshot({ path: join(PICTURES, 'web-phone-light.png') });
  await phone.context().close();
  return 0;
}

async function main() {
  const profile = (name, program = name) => `[[profile]]\nname = "${name}"\nexe = ["${scratch}/${program}"]\n`;
  // Agents of this host have no place in the pictures.
  const others = PICTURES
    ? `[tracking]\nbuilt_in_profiles = false\n${profile('claude-code', 'claude')}${profile('codex')}`
    : '';
  mkdirSync(join(scratch, 'run'));
  writeFileSync(join(scratch, 'config.toml'), `[orphans]\ngrace = "2s"\n[gate]\nmax_sessions = 12\n${others}${OURS.map((name) => profile(name)).join('')}`);
  ['helper', 'node', 'chromium', 'a\u202eb'].forEach(install);
  await startDaemon();
  const mib = (size) => size * (PICTURES ? 8 : 1);
  stage('claude', `anon ${mib(90)} spawn-as node [ node_modules/@modelcontextprotocol/server-memory/dist/index.js ] [ anon ${mib(60)} hold ] spawn-as node [ node_modules/@modelcontextprotocol/server-github/dist/index.js ] `
    + `[ anon ${mib(35)} spawn-as chromium [ --type=renderer ] [ anon ${mib(120)} hold ] hold ] times 400 [ anon ${mib(1)} sleep 2 ] hold`);
  stage('codex', `anon ${mib(40)} spawn-as node [ node_modules/@modelcontextprotocol/server-everything/dist/index.js ] [ anon ${mib(25)} times 20 [ anon ${mib(9)} sleep 9 release sleep 4 ] hold ] hold`);
  if (!PICTURES) stage('evil', 'fork [ rename <img~onerror=1> anon 12 hold ] spawn a\u202eb [ hold ] hold', EVIL);
  const doomed = stage('gemini', `anon ${mib(20)} spawn helper [ anon ${mib(48)} hold ] spawn-as node [ node_modules/@modelcontextprotocol/server-filesystem/dist/index.js ] [ anon ${mib(30)} hold ] hold`);
  await sessionOf('claude-code');
  await sessionOf('codex');
  await eventually('the helpers', async () => (await sessionOf('gemini')).processes.length === 3);
  doomed.kill('SIGKILL');
  await eventually('an orphan finding', () => ctl('findings').findings.some((one) => one.kind === 'orphan'));
  copyFileSync(bin('watchdogctl'), join(scratch, 'watchdogctl'));
  reader = await startWeb([]);
  actor = await startWeb(['--act']);
  browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
  // The history has a sample every 10 s.
  await eventually('a sample of the host', () => ctl('history').records.filter((one) => one.type === 'host').length > 1, 30_000);
  if (PICTURES) {
    mkdirSync(PICTURES, { recursive: true });
    await sleep(Number(process.env.STAGE_SECONDS || 300) * 1_000);
    return takePictures();
  }
  if (process.env.MEASURE) return measure();
  let failed = 0;
  const only = process.argv[2];
  for (const [name, test] of Object.entries(TESTS)) {
    if (only && !name.includes(only)) continue;
    const began = Date.now();
    const restore = checkpoint();
    const errors = [];
    for (const step of [test, restore]) await step().catch((error) => errors.push(error.stack));
    if (errors.length) failed++;
    console.log(`test ${name} ... ${errors.length ? `FAILED\n${errors.join('\n')}` : `ok (${Date.now() - began} ms)`}`);
  }
  for (const [name, web] of [['read-only', reader], ['--act', actor]]) {
    const status = readFileSync(`/proc/${web.child.pid}/status`, 'utf8');
    console.log(`${name}: ${status.match(/VmRSS:\s+(.*)/)[1]} resident, ${status.match(/RssAnon:\s+(.*)/)[1]} of them anonymous, ${status.match(/VmHWM:\s+(.*)/)[1]} at most, ${status.match(/Threads:\s+(\d+)/)[1]} threads`);
  }
  console.log(`test result: ${failed ? 'FAILED' : 'ok'}. ${Object.keys(TESTS).length - failed} passed; ${failed} failed;`);
  return failed;
}

let failed = 1;
try {
  failed = await main();
} catch (error) {
  console.log(error.stack);
} finally {
  if (browser) await browser.close();
  // Descendants of the stage, as the daemon knows them; then the rest.
  try { killAll(listed().filter(isOurs)); } catch { /* the daemon has exited */ }
  for (const child of started.reverse()) await stop(child);
  for (const undo of cleanups.reverse()) await undo();
  spawnSync(bin('watchdogd'), ['--runtime-dir', join(scratch, 'run'), '--unpin']);
  rmSync(scratch, { recursive: true, force: true });
}
process.exit(failed ? 1 : 0);
