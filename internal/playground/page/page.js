"use strict";
// The page runs one Go program for each play, and throws it away for the next. It gives the program a clock and random numbers of
// its own: time advances only when every goroutine waits, to the instant of the next timer. So a story is the same each time,
// and the same as in a test with testing/synctest.

const second = 1e9, start = 1e9, birth = 946684800; // nanoseconds; the wall clock begins in the year 2000, as synctest's does

class Play {
	constructor(story, rules) {
		this.story = story;
		this.now = start;
		this.timers = new Map();
		this.seed = 42;
		this.next = 1;
		this.go = new Go();
		this.go.argv = ["playground", story, ...rules];
		this.go.exit = code => fail(`the program has ended (${code}); its error is in the console`);
		this.simulate(this.go.importObject.gojs);
	}

	// simulate puts this clock in the place of the browser's.
	simulate(host) {
		const go = this.go;
		const long = (at, v) => { go.mem.setUint32(at, v % 2 ** 32, true); go.mem.setUint32(at + 4, Math.floor(v / 2 ** 32), true); };
		const read = at => go.mem.getUint32(at, true) + go.mem.getInt32(at + 4, true) * 2 ** 32;
		host["runtime.nanotime1"] = sp => long((sp >>> 0) + 8, this.now);
		host["runtime.walltime"] = sp => {
			long((sp >>> 0) + 8, birth + Math.floor((this.now - start) / second));
			go.mem.setInt32((sp >>> 0) + 16, (this.now - start) % second, true);
		};
		host["runtime.scheduleTimeoutEvent"] = sp => {
			this.timers.set(this.next, this.now + read((sp >>> 0) + 8) * 1e6);
			go.mem.setInt32((sp >>> 0) + 16, this.next++, true);
		};
		host["runtime.clearTimeoutEvent"] = sp => this.timers.delete(go.mem.getInt32((sp >>> 0) + 8, true));
		host["runtime.getRandomData"] = sp => {
			const at = read((sp >>> 0) + 8), n = read((sp >>> 0) + 16);
			for (let i = 0; i < n; i++) {
				this.seed ^= this.seed << 13; this.seed ^= this.seed >>> 17; this.seed ^= this.seed << 5;
				go.mem.setUint8(at + i, this.seed & 255);
			}
		};
	}

	// open runs the program until its stage is ready.
	async open() {
		window.opened = stage => { this.stage = stage; };
		const instance = await WebAssembly.instantiate(await module, this.go.importObject);
		this.go.run(instance);
		while (!this.stage) this.pass(this.now + second);
	}

	// pass lets simulated time pass until an instant, or for as long as the reader may wait for the next frame.
	pass(until) {
		const enough = performance.now() + 12;
		while (performance.now() < enough) {
			let id = 0, due = Infinity;
			for (const [i, at] of this.timers) if (at < due) [id, due] = [i, at];
			if (due > until) { this.now = Math.max(this.now, until); return; }
			this.now = Math.max(this.now, due);
			this.go._resume();
			while (this.timers.get(id) === due) this.go._resume(); // the program was busy with something else
		}
	}

	state() { return JSON.parse(this.stage.state()); }
}

const $ = id => document.getElementById(id);
const make = (tag, className = "", text = "") => Object.assign(document.createElement(tag), { className, textContent: text });
const seconds = ns => (ns / second).toFixed(1) + " s";
const fail = text => { $("trouble").hidden = !text; $("trouble").textContent = text; };

const module = (async () => {
	const letters = atob($("program").textContent);
	const bytes = Uint8Array.from(letters, c => c.charCodeAt(0));
	const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
	return WebAssembly.compile(await new Response(plain).arrayBuffer());
})();

let play = null, running = false, hurry = false, frame = 0, drawnAt = 0;

// begin opens the story that the address names.
async function begin() {
	const story = location.hash.slice(1) || "free";
	const rules = [...($("token").checked ? [] : ["notoken"]), ...($("clock").checked ? [] : ["noclock"])];
	for (const a of document.querySelectorAll("nav a")) a.toggleAttribute("aria-current", a.hash === "#" + story);
	fail("");
	play = null;
	const fresh = new Play(story, rules);
	try { await fresh.open(); } catch (err) { fail(String(err)); return; }
	play = fresh;
	furnish(play.state());
	hurry = false;
	go(true);
}

// go runs the clock, or stops it.
function go(on) {
	running = on;
	$("run").textContent = on ? "Pause" : "Play";
	frame = performance.now();
	show(true);
}

function tick(now) {
	requestAnimationFrame(tick);
	const passed = Math.min(now - frame, 100) * 1e6;
	frame = now;
	if (!play || !running) return;
	play.pass(hurry ? play.now + 3600 * second : play.now + passed * Number($("speed").value));
	show(false);
}

// act makes the stage do something, and shows the result at once.
function act(what, who) {
	fail(play.stage.act(what, who));
	show(true);
}

// furnish makes the elements of a stage.
function furnish(state) {
	const free = play.story === "free";
	$("end").disabled = free;
	const acts = (kind, who, names) => {
		const row = make("div", "acts");
		if (free) for (const name of names) {
			const b = make("button", "", name);
			b.dataset.act = name;
			b.onclick = () => act(name, who);
			row.append(b);
		}
		return row;
	};
	$("clients").replaceChildren(...state.Clients.map(c => {
		const div = make("div", "client");
		div.append(make("b", "", c.Name), make("span", "state"), make("div", "facts"),
			acts("client", c.Name, ["lock", "unlock", "cut", "mend", "stop", "resume", "kill", "restart", "expire"]));
		return div;
	}));
	$("servers").replaceChildren(...state.Servers.map(m => {
		const div = make("div", "server");
		div.append(make("span", "state"), acts("server", m.Name, ["leave", "heal"]));
		return div;
	}));
	$("guarantees").replaceChildren(...state.Guarantees.map(() => {
		const div = make("div");
		div.append(make("b"), make("span"));
		return div;
	}));
}

// show brings the page up to date; the picture only every now and then.
function show(now) {
	if (!play) return;
	const state = play.state();
	$("at").textContent = seconds(state.At);
	if (state.Error) fail(state.Error);
	state.Guarantees.forEach((g, i) => {
		const div = $("guarantees").children[i];
		div.className = g.Holds ? "" : "broken";
		div.children[0].textContent = g.Name;
		div.children[1].textContent = g.Detail;
	});
	state.Clients.forEach((c, i) => showClient($("clients").children[i], c));
	$("queue").replaceChildren(...(state.Queue || []).map(q => make("li", "", `${q.Number} of ${q.Owner}, token ${q.Token}`)));
	$("store").textContent = `Last writer: ${state.Store.Writer || "none"}; highest token ${state.Store.Token}; ` +
		`${state.Store.Taken} writes accepted, ${state.Store.Refused} refused, ${state.Store.Lost} lost`;
	state.Servers.forEach((m, i) => {
		const div = $("servers").children[i], cut = state.Servers.some(m => m.Cut);
		div.className = "server" + (m.Cut ? " cut" : "");
		div.children[0].textContent = m.Name + (m.Cut ? ": cut off from the others" : m.Leads ? ": leads" : ": follows");
		for (const b of div.querySelectorAll("button")) {
			b.textContent = b.dataset.act === "heal" ? "heal" : m.Leads ? "depose" : "cut off";
			b.disabled = b.dataset.act === "heal" ? !m.Cut : cut;
		}
	});
	if (state.Ended && running) { hurry = false; running = false; $("run").textContent = "Play"; now = true; }
	$("run").disabled = state.Ended;
	document.body.dataset.ended = state.Ended;
	if (now || performance.now() > drawnAt + 200) {
		drawnAt = performance.now();
		$("picture").src = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(play.stage.picture(play.story === "free" ? 40 : 3600));
	}
}

function showClient(div, c) {
	const what = c.Link || (c.Holds ? "holds" : c.Asked ? "waits" : "");
	div.className = "client " + (c.Link === "cut off" ? "cut" : what);
	const text = [];
	if (c.Link) text.push(c.Link);
	if (c.Holds) text.push("holds"); else if (c.Asked && c.Link !== "dead") text.push(c.Token ? "has held" : "waits");
	div.children[1].textContent = text.join(", ") || "idle";
	const facts = [];
	if (c.Token) facts.push("token " + c.Token, "lease " + (c.Lease > 0 ? "for " + seconds(c.Lease) : "over"));
	else if (c.Asked && c.Ahead) facts.push(c.Ahead + " ahead");
	facts.push(c.ExpiresIn ? "session expires in " + seconds(c.ExpiresIn) : "no session", c.Server || "not connected");
	if (c.Writes) facts.push(c.Writes + " writes");
	if (c.Last) facts.push("last hold: " + c.Last);
	div.children[2].textContent = facts.join(" · ");
	const gone = c.Link === "dead", can = {
		lock: !c.Asked && !gone && c.Link !== "stopped", unlock: c.Holds && c.Link === "", cut: c.Link === "", mend: c.Link === "cut off",
		stop: c.Link === "" || c.Link === "cut off", resume: c.Link === "stopped", kill: !gone, restart: gone, expire: c.ExpiresIn > 0,
	};
	for (const b of div.querySelectorAll("button")) b.disabled = !can[b.dataset.act];
}

$("run").onclick = () => go(!running);
$("again").onclick = begin;
$("end").onclick = () => { hurry = true; go(true); };
$("token").onchange = $("clock").onchange = begin;
window.onhashchange = begin;
requestAnimationFrame(tick);
begin();
