// A worker in a hidden frame, for pages that are opened from the disk: browsers start no Worker from a file there,
// and the search of the site is one. Frames and their parent talk by messages, as a worker and its page do.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentDocument;
      const start = "window.postMessage = (data) => parent.postMessage(data, '*')";
      // The frame hears its parent under the name it had before a worker's own took its place.
      this.send = this.frame.contentWindow.postMessage.bind(this.frame.contentWindow);
      inside.open();
      inside.write(`<script>${start}<\/script><script src="${encodeURI(decodeURI(url))}"><\/script>`);
      inside.close();
      this.ready = new Promise((resolve) => this.frame.addEventListener("load", resolve));
      this.hear = (event) => {
        if (event.source !== this.frame.contentWindow) return;
        const message = new MessageEvent("message", {data: event.data});
        this.dispatchEvent(message);
        this.onmessage?.(message);
      };
      addEventListener("message", this.hear);
    }

    postMessage(data) {
      this.ready.then(() => this.send(data, "*"));
    }

    terminate() {
      removeEventListener("message", this.hear);
      this.frame.remove();
    }
  };
}
